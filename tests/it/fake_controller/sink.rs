//! A receiver of callbacks that answers as it is told, on threads of its own.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::PATIENCE;

/// What a receiver does with one request.
pub enum Act {
    /// Sends these bytes and keeps the connection.
    Say(String),
    /// Sends these bytes and closes the connection.
    SayAndClose(String),
    /// Never answers.
    Hang,
}

impl Act {
    pub fn status(status: u16) -> Act {
        Act::Say(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"))
    }

    pub fn redirect(status: u16, location: &str) -> Act {
        Act::Say(format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"))
    }
}

/// One request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Counts connections from 1.
    pub connection: usize,
    pub text: String,
}

impl Seen {
    /// Method and path.
    pub fn what(&self) -> &str {
        self.text.split(" HTTP/").next().unwrap()
    }

    pub fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").unwrap().1
    }
}

pub struct Sink {
    address: SocketAddr,
    seen: mpsc::UnboundedReceiver<Seen>,
    is_over: Arc<AtomicBool>,
}

impl Sink {
    /// Answers every request with 200.
    pub fn agreeing() -> Sink {
        Sink::new(|_, _| Act::status(200))
    }

    /// Answers as the function says, which is told how many requests came before.
    pub fn new(answer: impl Fn(usize, &Seen) -> Act + Send + Sync + 'static) -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let count = Arc::new(std::sync::Mutex::new(0));
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (tell, answer, count) = (tell.clone(), answer.clone(), count.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    while let Some(text) = request(&mut stream) {
                        let seen = Seen { connection: index + 1, text };
                        let before = {
                            let mut count = count.lock().unwrap();
                            // Told under the lock, so that the order of telling is the order of counting.
                            drop(tell.send(seen.clone()));
                            *count += 1;
                            *count - 1
                        };
                        if !carry_out(answer(before, &seen), &mut stream) {
                            return;
                        }
                    }
                });
            }
        });
        Sink { address, seen, is_over }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request that arrives.
    pub async fn next(&mut self) -> Seen {
        tokio::time::timeout(PATIENCE, self.seen.recv()).await.expect("a callback was expected").unwrap()
    }

    /// The next requests: method and path, and the body.
    pub async fn next_bodies(&mut self, count: usize) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for _ in 0..count {
            let seen = self.next().await;
            all.push((seen.what().to_owned(), seen.body().to_owned()));
        }
        all
    }

    /// All that arrived and was not asked for yet.
    pub fn rest(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the listening thread, which then sees that it is over.
        drop(TcpStream::connect(self.address));
    }
}

fn carry_out(act: Act, stream: &mut TcpStream) -> bool {
    match act {
        Act::Say(text) => stream.write_all(text.as_bytes()).is_ok(),
        Act::SayAndClose(text) => {
            drop(stream.write_all(text.as_bytes()));
            drop(stream.shutdown(Shutdown::Both));
            false
        }
        Act::Hang => {
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
            false
        }
    }
}

fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if let Some(length) = complete_length(&bytes) {
            return Some(String::from_utf8(bytes[..length].to_vec()).unwrap());
        }
        let mut part = [0; 65_536];
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// The length of the HTTP message at the beginning of these bytes, once all of it is there.
pub fn complete_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).unwrap().to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    (bytes.len() >= head + length).then_some(head + length)
}
