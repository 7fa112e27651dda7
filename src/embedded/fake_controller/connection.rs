//! One incoming connection: request after request, until one side has enough. What is answered is decided elsewhere.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::answer::{self, Answer};
use super::clock::DateText;
use super::control::{self, Afterwards};
use super::create::{self, Reply};
use super::head::{self, Head, Parsed};
use super::ledger::Refusal;
use super::wire::Wire;
use super::world::Shared;
use crate::protocol::heng::signing::BODY_BYTES_MAX;

/// How a connection ends.
enum End {
    Close,
    Reset,
    Hang,
}

/// Serves a connection to its end.
pub(super) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    shared.with(|world| world.ledger.counters.connections += 1);
    let mut connection = Connection { wire: Wire::new(stream), date: DateText::default(), served: 0, shared };
    let end = loop {
        if let Err(end) = connection.exchange().await {
            break end;
        }
    };
    match end {
        End::Close => {}
        End::Reset => connection.wire.reset(),
        End::Hang => connection.outlast().await,
    }
}

struct Connection {
    shared: Arc<Shared>,
    wire: Wire,
    date: DateText,
    served: u64,
}

impl Connection {
    /// One request and its answer.
    async fn exchange(&mut self) -> Result<(), End> {
        let head = self.head().await?;
        if head.expects_continue {
            self.wire.send(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(|_| End::Close)?;
        }
        // What is above the limit is read as well, and thrown away: the client may not listen before it has sent all.
        let body = self.wire.body(head.framing, BODY_BYTES_MAX, None).await.map_err(|_| End::Close)?;
        self.served += 1;
        if head.path().starts_with(control::PREFIX) {
            return self.control(&head, &body.bytes).await;
        }
        self.shared.with(|world| world.ledger.counters.requests += 1);
        match self.reply(&head, &body.bytes, body.is_cut).await {
            Reply::Answer(answer) => {
                self.shared.change(|world| world.ledger.answered(answer.status));
                self.answer(&head, &answer).await
            }
            Reply::Close => Err(End::Close),
            Reply::Reset => Err(End::Reset),
            Reply::Hang => Err(End::Hang),
        }
    }

    async fn head(&mut self) -> Result<Box<Head>, End> {
        loop {
            if self.served > 0 && !self.wire.unread().is_empty() && self.is_reset() {
                return Err(End::Reset);
            }
            match head::parse(self.wire.unread()) {
                Parsed::Complete(head, used) => {
                    self.wire.consume(used);
                    return Ok(head);
                }
                Parsed::Malformed => return self.refuse(answer::MALFORMED).await,
                Parsed::Partial if self.wire.unread().len() > head::HEAD_MAX => {
                    return self.refuse(answer::HEAD_TOO_LARGE).await;
                }
                Parsed::Partial => self.more().await?,
            }
        }
    }

    async fn more(&mut self) -> Result<(), End> {
        let patience = (self.served > 0).then_some(self.shared.config.timing.idle_close);
        self.wire.fill_within(patience).await.map_err(|_| End::Close)
    }

    fn is_reset(&self) -> bool {
        self.shared.with(|world| world.switches.create_reset_reused.take(&mut world.random).is_some())
    }

    async fn refuse<T>(&mut self, bytes: &[u8]) -> Result<T, End> {
        self.shared.change(|world| world.ledger.refused(Refusal::Malformed));
        // The connection ends either way.
        self.wire.send(bytes).await.map_err(|_| End::Close)?;
        Err(End::Close)
    }

    async fn reply(&self, head: &Head, body: &[u8], is_cut: bool) -> Reply {
        let route = Route::of(head, &self.shared.config.prefix);
        if route == Route::Judges
            && let Some(answer) = create::in_front(&self.shared).await
        {
            return Reply::Answer(answer);
        }
        if is_cut {
            return self.refused(Refusal::BodyTooLarge, Answer::too_large());
        }
        let received = match create::receive(head, body) {
            Ok(received) => received,
            Err((refusal, answer)) => return self.refused(refusal, answer),
        };
        match route {
            Route::Root => Reply::Answer(Answer::hello()),
            Route::Test => Reply::Answer(Answer::created()),
            Route::Judges => create::create(&self.shared, head, received).await,
            Route::None => self.refused(Refusal::NoRoute, Answer::not_found(&head.method, &head.target)),
        }
    }

    fn refused(&self, refusal: Refusal, answer: Answer) -> Reply {
        self.shared.change(|world| world.ledger.refused(refusal));
        Reply::Answer(answer)
    }

    async fn control(&mut self, head: &Head, body: &[u8]) -> Result<(), End> {
        let (answer, afterwards) = control::answer(&self.shared, head, body);
        let result = self.answer(head, &answer).await;
        if let Some(Afterwards::Order(order)) = afterwards
            && self.shared.orders.send(order).is_err()
        {
            log::debug!("the fake controller is stopping");
        }
        result
    }

    async fn answer(&mut self, head: &Head, answer: &Answer) -> Result<(), End> {
        let date = self.date.at(self.shared.now());
        let bytes = answer.bytes(date, head.keep_alive);
        self.wire.send(&bytes).await.map_err(|_| End::Close)?;
        if head.keep_alive { Ok(()) } else { Err(End::Close) }
    }

    /// Says nothing until the client leaves.
    async fn outlast(&mut self) {
        while self.wire.fill().await.is_ok() {
            self.wire.consume(self.wire.unread().len());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Root,
    Judges,
    Test,
    None,
}

impl Route {
    /// As Express routes: in any case, and with or without a slash at the end.
    fn of(head: &Head, prefix: &str) -> Self {
        let path = head.path();
        let rest = match path.get(..prefix.len()) {
            Some(start) if start.eq_ignore_ascii_case(prefix) => &path[prefix.len()..],
            _ => return Route::None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        match head.method.as_str() {
            "GET" if rest.is_empty() => Route::Root,
            "POST" if rest.eq_ignore_ascii_case("/judges") => Route::Judges,
            "POST" if rest.eq_ignore_ascii_case("/judges/testurl") => Route::Test,
            _ => Route::None,
        }
    }
}
