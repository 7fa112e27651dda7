//! Reading a request's body: declared as JSON, bounded in size and in time. What it means is read elsewhere.

use std::time::Duration;

use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use actix_web::web::{BytesMut, Payload};
use actix_web::{HttpMessage, HttpRequest};
use futures_util::StreamExt;
use serde_json::value::RawValue;

use super::ApiError;

/// The longest wait for a whole body.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// The body as one JSON document of at most `limit` bytes.
pub(super) async fn read_json(request: &HttpRequest, body: Payload, limit: usize) -> Result<Box<RawValue>, ApiError> {
    if !is_json(request) {
        return Err(ApiError::NotJson);
    }
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|size| size > limit) {
        return Err(ApiError::BodyTooLarge(limit));
    }
    let bytes = tokio::time::timeout(BODY_LIMIT, collect(body, limit)).await.map_err(|_| ApiError::BodyTooSlow)??;
    serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let what = if error.is_eof() { "The JSON ends too early" } else { "The body is not valid JSON" };
        ApiError::BadBody(format!("{what} (line {line}, column {column})"))
    })
}

/// Compressed bodies are not taken: the size that counts is not the one that is sent.
fn is_json(request: &HttpRequest) -> bool {
    let is_json = matches!(request.mime_type(), Ok(Some(mime)) if mime.essence_str() == "application/json");
    is_json && !request.headers().contains_key(CONTENT_ENCODING)
}

async fn collect(mut body: Payload, limit: usize) -> Result<BytesMut, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        if bytes.len() + chunk.len() > limit {
            return Err(ApiError::BodyTooLarge(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
