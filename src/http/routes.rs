//! The addresses of the API: one table, from which the routes are mounted and against which the OpenAPI document is tested.
//!
//! The callback door is mounted beside it.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::http::{ConnectionType, Method};
use actix_web::middleware::{Next, from_fn};
use actix_web::{HttpRequest, HttpResponse, ResponseError, Route, web};

use super::error::ApiError;
use super::{Api, listing, ops, reads, submissions, tokens};

/// One method of one address.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The method.
    pub method: Method,
    /// The address, its parameters in braces.
    pub path: &'static str,
    mount: fn(Route) -> Route,
}

/// Every address with its method. GET is answered to HEAD, too.
pub fn endpoints() -> Vec<Endpoint> {
    let get = |path, mount| Endpoint { method: Method::GET, path, mount };
    let post = |path, mount| Endpoint { method: Method::POST, path, mount };
    vec![
        post("/v1/submissions", |route| route.to(submissions::submit)),
        get("/v1/submissions", |route| route.to(listing::list)),
        post("/v1/submissions:batch", |route| route.to(submissions::submit_batch)),
        get("/v1/submissions/{id}", |route| route.to(reads::read)),
        post("/v1/admin/tokens", |route| route.to(tokens::make)),
        Endpoint { method: Method::DELETE, path: "/v1/admin/tokens/{name}", mount: |route| route.to(tokens::revoke) },
        get("/v1/status", |route| route.to(ops::status)),
        get("/healthz", |route| route.to(ops::healthz)),
        get("/readyz", |route| route.to(ops::readyz)),
        get("/metrics", |route| route.to(ops::metrics)),
        get("/openapi.json", |route| route.to(ops::openapi_json)),
    ]
}

/// Mounts everything, with 404 for any other address.
pub fn configure(config: &mut web::ServiceConfig, api: web::Data<Api>) {
    let endpoints = endpoints();
    config.app_data(api);
    for (at, endpoint) in endpoints.iter().enumerate() {
        if endpoints[..at].iter().all(|earlier| earlier.path != endpoint.path) {
            let same_path: Vec<&Endpoint> = endpoints.iter().filter(|other| other.path == endpoint.path).collect();
            config.service(resource(&same_path));
        }
    }
    config.default_service(web::to(no_such_route));
}

fn resource(endpoints: &[&Endpoint]) -> impl actix_web::dev::HttpServiceFactory + 'static {
    let path = endpoints.first().map_or("", |endpoint| endpoint.path);
    let mut resource = web::resource(path);
    let mut allowed = Vec::new();
    for endpoint in endpoints {
        resource = resource.route((endpoint.mount)(web::method(endpoint.method.clone())));
        allowed.push(endpoint.method.clone());
        if endpoint.method == Method::GET {
            resource = resource.route((endpoint.mount)(web::head()));
            allowed.push(Method::HEAD);
        }
    }
    let refuse = move || std::future::ready(ApiError::MethodNotAllowed(allowed.clone()).error_response());
    resource.default_service(web::to(refuse)).wrap(from_fn(at_the_edge))
}

async fn no_such_route(api: web::Data<Api>, _: HttpRequest) -> HttpResponse {
    let mut response = ApiError::NoSuchRoute.error_response();
    if api.registry.draining() {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

/// What holds for every answer: it is not kept by caches, and while draining the caller is sent to another process.
async fn at_the_edge(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let draining = request.app_data::<web::Data<Api>>().map(|api| api.registry.clone());
    let mut response = next.call(request).await?;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if draining.is_some_and(|registry| registry.draining()) {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(response)
}
