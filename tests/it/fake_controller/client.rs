//! A client of the fake that speaks raw HTTP, so that every byte is seen.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use judge_relay::embedded::fake_controller::Config;
use judge_relay::protocol::heng::signing::{Credentials, sign};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::PATIENCE;
use super::sink::{Sink, complete_length};

pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client { stream: TcpStream::connect(address).await.unwrap(), buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer.
    pub async fn answer(&mut self) -> String {
        self.try_answer().await.expect("an answer was expected")
    }

    /// The next answer; none when the connection is closed or reset first.
    pub async fn try_answer(&mut self) -> Option<String> {
        loop {
            if let Some(length) = complete_length(&self.buffer) {
                return Some(String::from_utf8(self.buffer.drain(..length).collect()).unwrap());
            }
            let read = self.stream.read_buf(&mut self.buffer);
            match tokio::time::timeout(PATIENCE, read).await.expect("an answer or an end was expected") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

/// One request on a connection of its own.
pub async fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut client = Client::connect(address).await;
    client.send(bytes).await;
    client.answer().await
}

/// The status of one request on a connection of its own; none when it was not answered.
pub async fn status(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Option<u16> {
    let mut client = Client::connect(address).await;
    client.send(bytes).await;
    client.try_answer().await.map(|answer| status_of(&answer))
}

pub fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A request to be signed; change what a test is about.
pub struct Request {
    pub access_key: &'static str,
    pub secret_key: &'static str,
    pub path: String,
    pub body: String,
    pub nonce: String,
    pub timestamp: i64,
}

impl Request {
    pub fn new(body: impl Into<String>) -> Request {
        static NONCE: AtomicU64 = AtomicU64::new(0);
        Request {
            access_key: Config::ACCESS_KEY,
            secret_key: Config::SECRET_KEY,
            path: "/c/v1/judges".to_owned(),
            body: body.into(),
            nonce: NONCE.fetch_add(1, Ordering::Relaxed).to_string(),
            timestamp: now(),
        }
    }

    pub fn signed(&self) -> Vec<u8> {
        let credentials = Credentials::new(self.access_key, self.secret_key);
        let headers = sign(&credentials, "POST", &self.path, &self.body, &self.nonce, self.timestamp);
        let lines: Vec<String> = headers.pairs().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (path, length, body) = (&self.path, self.body.len(), &self.body);
        format!("POST {path} HTTP/1.1\r\nHost: fake\r\n{}Content-Length: {length}\r\n\r\n{body}", lines.concat())
            .into_bytes()
    }
}

pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A signed request for a job with one case whose callbacks go to `/{name}/update` and `/{name}/finish` of the sink.
pub fn job(sink: &Sink, name: &str, source: &str) -> Vec<u8> {
    Request::new(job_body(sink.address(), name, source, 1, "all")).signed()
}

pub fn job_body(sink: SocketAddr, name: &str, source: &str, cases: usize, policy: &str) -> String {
    let source = serde_json::to_string(source).unwrap();
    let limits = concat!(
        r#"{"runtime":{"memory":134217728,"cpuTime":1000,"output":67108864},"#,
        r#""compiler":{"memory":536870912,"cpuTime":10000,"output":67108864,"message":102400}}"#
    );
    let cases = vec![r#"{"input":"in","output":"out"}"#; cases].join(",");
    format!(
        concat!(
            r#"{{"judge":{{"type":"normal","user":{{"source":{{"type":"direct","content":{}}},"#,
            r#""environment":{{"language":"cpp","system":"Linux","arch":"x64","options":{{}}}},"limit":{}}}}},"#,
            r#""test":{{"cases":[{}],"policy":"{}"}},"#,
            r#""callbackUrls":{{"update":"http://{}/{}/update","finish":"http://{}/{}/finish"}}}}"#
        ),
        source, limits, cases, policy, sink, name, sink, name
    )
}
