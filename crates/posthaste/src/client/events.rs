//! Server-sent events: an answer without an end, read event by event.

use std::collections::VecDeque;

use http::header::{CONTENT_TYPE, HeaderMap};
use posthaste_wire::http::{Exchange, Unread};

use super::{Client, ClientError, ClientResponse};

/// The type of an answer that is a stream of events.
const EVENT_STREAM: &str = "text/event-stream";
/// The most bytes of one event.
const MAX_EVENT: usize = 1024 * 1024;

/// An answer to a request for events.
pub enum Opened<'c> {
    Events(Box<EventStream<'c>>),
    /// Anything else, such as a problem.
    Answer(ClientResponse),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerEvent {
    /// Empty if it has none.
    pub name: String,
    /// The id of the last event that had one, this one included.
    pub id: Option<String>,
    pub data: String,
}

/// The events of an answer as they come.
pub struct EventStream<'c> {
    client: &'c Client,
    exchange: Exchange,
    parser: EventParser,
}

impl<'c> EventStream<'c> {
    pub(super) fn is_one(exchange: &Exchange) -> bool {
        let kind = exchange.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        exchange.status().is_success() && kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM))
    }

    pub(super) fn new(client: &'c Client, exchange: Exchange) -> Self {
        Self { client, exchange, parser: EventParser::default() }
    }

    /// The next event; none if the server has ended the stream. A comment of the server is an event without a name and
    /// data, so that the caller sees that the server lives.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, ClientError> {
        loop {
            if let Some(event) = self.parser.events.pop_front() {
                return Ok(Some(event));
            }
            match self.exchange.chunk().await.map_err(|unread| self.client.unread(unread))? {
                None => return Ok(None),
                Some(bytes) => {
                    self.parser.feed(&bytes);
                    if self.parser.is_too_long() {
                        return Err(self.client.unread(Unread::TooLong));
                    }
                }
            }
        }
    }

    /// The headers of the answer.
    pub fn headers(&self) -> &HeaderMap {
        self.exchange.headers()
    }

    /// The id to go on from after a break.
    pub fn last_id(&self) -> Option<&str> {
        self.parser.last_id.as_deref()
    }
}

/// Takes the bytes of a stream apart, as the HTML standard says.
#[derive(Debug, Default)]
struct EventParser {
    /// A line whose end has not come yet.
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    last_id: Option<String>,
    events: VecDeque<ServerEvent>,
}

impl EventParser {
    fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                None => self.line.extend_from_slice(piece),
                Some(end) => {
                    self.line.extend_from_slice(end);
                    let line = std::mem::take(&mut self.line);
                    self.line_ended(line.strip_suffix(b"\r").unwrap_or(&line));
                }
            }
        }
    }

    fn line_ended(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), self.data.take().unwrap_or_default());
            return self.events.push_back(ServerEvent { name, id: self.last_id.clone(), data });
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "id" => self.last_id = Some(value.to_owned()),
            "data" => match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            },
            // Comments, `retry`, and what later versions may add.
            _ => {}
        }
    }

    fn is_too_long(&self) -> bool {
        self.line.len() + self.data.as_ref().map_or(0, String::len) > MAX_EVENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "retry: 2000\nid: 1.5\n\nevent: notification\r\nid: 1.6\ndata: {\"a\":\ndata: 1}\n\n:\n\nevent:x\nunknown: y\n\n";
        let event = |name: &str, id: &str, data: &str| ServerEvent {
            name: name.to_owned(),
            id: Some(id.to_owned()),
            data: data.to_owned(),
        };
        let wanted = [
            event("", "1.5", ""),
            event("notification", "1.6", "{\"a\":\n1}"),
            event("", "1.6", ""),
            event("x", "1.6", ""),
        ];
        for size in [1, 2, 7, text.len()] {
            let mut parser = EventParser::default();
            text.as_bytes().chunks(size).for_each(|chunk| parser.feed(chunk));
            assert_eq!(parser.events, wanted, "{size}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_too_long_at_last() {
        let mut parser = EventParser::default();
        parser.feed(&vec![b'x'; MAX_EVENT]);
        assert!(!parser.is_too_long());
        parser.feed(b"y");
        assert!(parser.is_too_long());
    }
}
