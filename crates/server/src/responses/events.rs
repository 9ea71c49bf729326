//! A turn as the events of a stream.
//!
//! An item is announced, grows by deltas, and comes whole when it is done; the last event has the response with all items. Thinking
//! goes out as summary text: clients take other forms of it for the answer.

use kapitsa::ReplyToken;
use kapitsa::turn::{TurnEnd, TurnEvent, TurnUsage};
use serde_json::{Map, Value, json};

use super::tools::Offers;
use super::{ResponsesRequest, reasoning};
use crate::error::ApiError;

/// An event: its name and its data, which says the name again.
pub(crate) type Event = (&'static str, Value);

/// Makes an id that no other has, from its prefix.
pub(crate) type NewId = Box<dyn FnMut(&'static str) -> String + Send>;

/// Log-probabilities of tokens as objects of `token`, `logprob`, `bytes` and `top_logprobs`.
pub(crate) type Spell = Box<dyn Fn(&[ReplyToken]) -> Vec<Value> + Send>;

/// Writes the events of one response.
pub(crate) struct Writer {
    new_id: NewId,
    spell: Spell,
    offers: Offers,
    /// What every form of the response has.
    head: Value,
    /// What it repeats of the request.
    echo: Map<String, Value>,
    sequence: u64,
    /// Items that are done.
    output: Vec<Value>,
    open: Option<Open>,
    has_ended: bool,
    ready: Vec<Event>,
}

/// An item under way.
struct Open {
    kind: Kind,
    /// As it was announced.
    item: Value,
    text: String,
    logprobs: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    /// Which call of the turn.
    Function(usize),
    /// Of a tool that takes text.
    Custom(usize),
}

/// How the text of an item is sent.
struct Names {
    /// The events of more text and of the whole text.
    delta: &'static str,
    done: &'static str,
    /// The field that has the whole text.
    text: &'static str,
    /// Of the only part, if the item has parts.
    part: Option<PartNames>,
}

struct PartNames {
    index: &'static str,
    added: &'static str,
    done: &'static str,
}

impl Kind {
    fn names(self) -> Names {
        match self {
            Kind::Reasoning => Names {
                delta: "response.reasoning_summary_text.delta",
                done: "response.reasoning_summary_text.done",
                text: "text",
                part: Some(PartNames {
                    index: "summary_index",
                    added: "response.reasoning_summary_part.added",
                    done: "response.reasoning_summary_part.done",
                }),
            },
            Kind::Message => Names {
                delta: "response.output_text.delta",
                done: "response.output_text.done",
                text: "text",
                part: Some(PartNames {
                    index: "content_index",
                    added: "response.content_part.added",
                    done: "response.content_part.done",
                }),
            },
            Kind::Function(_) => Names {
                delta: "response.function_call_arguments.delta",
                done: "response.function_call_arguments.done",
                text: "arguments",
                part: None,
            },
            Kind::Custom(_) => Names {
                delta: "response.custom_tool_call_input.delta",
                done: "response.custom_tool_call_input.done",
                text: "input",
                part: None,
            },
        }
    }

    fn call(self) -> Option<usize> {
        match self {
            Kind::Function(index) | Kind::Custom(index) => Some(index),
            Kind::Reasoning | Kind::Message => None,
        }
    }
}

impl Writer {
    /// A response to `request`, made by `model` from the second `created_at` on.
    pub(crate) fn new(
        request: &ResponsesRequest,
        model: &str,
        created_at: u64,
        mut new_id: NewId,
        spell: Spell,
    ) -> Self {
        Writer {
            head: json!({
                "id": new_id("resp_"),
                "object": "response",
                "created_at": created_at,
                "status": "in_progress",
                "error": null,
                "incomplete_details": null,
                "model": model,
                "output": [],
                "usage": null,
            }),
            new_id,
            spell,
            offers: request.offers.clone(),
            echo: request.echo.clone(),
            sequence: 0,
            output: vec![],
            open: None,
            has_ended: false,
            ready: vec![],
        }
    }

    /// The events that a stream begins with.
    pub(crate) fn begin(&mut self) -> Vec<Event> {
        let response = with(self.head.clone(), self.echo.clone().into());
        self.emit("response.created", json!({ "response": response }));
        self.emit("response.in_progress", json!({ "response": response }));
        std::mem::take(&mut self.ready)
    }

    /// An event that keeps clients waiting, as comments do not. It comes often, so it repeats nothing of the request.
    pub(crate) fn sign_of_life(&mut self) -> Vec<Event> {
        if !self.has_ended {
            self.emit("response.in_progress", json!({ "response": self.head }));
        }
        std::mem::take(&mut self.ready)
    }

    /// What an event of the turn is to the client. Nothing follows the end.
    pub(crate) fn hear(&mut self, event: TurnEvent) -> Vec<Event> {
        let is_open = |index: usize| self.open.as_ref().is_some_and(|open| open.kind.call() == Some(index));
        match event {
            _ if self.has_ended => {}
            TurnEvent::Prefill(_) => {}
            TurnEvent::Thinking(text) => self.grow(Kind::Reasoning, &text, vec![]),
            TurnEvent::Text { text, tokens } => self.grow(Kind::Message, &text, (self.spell)(&tokens)),
            TurnEvent::CallBegins { index, name } => self.begin_call(index, &name),
            TurnEvent::CallInput { index, piece } if is_open(index) => self.delta(&piece, vec![]),
            TurnEvent::CallEnds { index } if is_open(index) => self.end_call(),
            TurnEvent::CallInput { .. } | TurnEvent::CallEnds { .. } => {}
            TurnEvent::Finished { end, usage } => self.finish(&end, usage),
        }
        std::mem::take(&mut self.ready)
    }

    /// The end of a response that failed. An item under way is lost.
    pub(crate) fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        if !self.has_ended {
            // Texts and nulls are always JSON.
            let error = serde_json::to_value(error.body()).unwrap_or_default()["error"].take();
            let code = if error["code"].is_null() { &error["type"] } else { &error["code"] };
            self.end("response.failed", "failed", json!({ "error": { "code": code, "message": error["message"] } }));
        }
        std::mem::take(&mut self.ready)
    }

    /// Thinking or text goes on, or begins.
    fn grow(&mut self, kind: Kind, text: &str, logprobs: Vec<Value>) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            if text.is_empty() {
                return;
            }
            let item = match kind {
                Kind::Reasoning => json!({ "type": "reasoning", "id": (self.new_id)("rs_"), "summary": [] }),
                _ => json!({ "type": "message", "id": (self.new_id)("msg_"), "role": "assistant", "content": [] }),
            };
            self.open(kind, item);
        }
        self.delta(text, logprobs);
    }

    fn begin_call(&mut self, index: usize, name: &str) {
        let (offer, takes_text) = match self.offers.called(name) {
            Some(offer) => (Some(offer.clone()), offer.takes_text),
            None => (None, false),
        };
        let (kind, r#type, prefix) = if takes_text {
            (Kind::Custom(index), "custom_tool_call", "ctc_")
        } else {
            (Kind::Function(index), "function_call", "fc_")
        };
        let (id, call_id) = ((self.new_id)(prefix), (self.new_id)("call_"));
        let mut item = json!({ "type": r#type, "id": id, "call_id": call_id, "name": name, (kind.names().text): "" });
        if let Some(offer) = offer {
            item["name"] = offer.name.into();
            if let Some(namespace) = offer.namespace {
                item["namespace"] = namespace.into();
            }
        }
        self.open(kind, item);
    }

    fn open(&mut self, kind: Kind, mut item: Value) {
        self.leave(false);
        item["status"] = "in_progress".into();
        let open = Open { kind, item, text: String::new(), logprobs: vec![] };
        self.emit("response.output_item.added", json!({ "output_index": self.output.len(), "item": open.item }));
        if let Some(part) = kind.names().part {
            self.emit(part.added, with(self.place(&open), json!({ "part": open.part() })));
        }
        self.open = Some(open);
    }

    fn delta(&mut self, text: &str, logprobs: Vec<Value>) {
        let Some(mut open) = self.open.take() else { return };
        let mut data = with(self.place(&open), json!({ "delta": text }));
        if open.kind == Kind::Message {
            data["logprobs"] = logprobs.clone().into();
        }
        self.emit(open.kind.names().delta, data);
        open.text.push_str(text);
        open.logprobs.extend(logprobs);
        self.open = Some(open);
    }

    fn end_call(&mut self) {
        // A call without arguments has an empty object for them.
        if self.open.as_ref().is_some_and(|open| matches!(open.kind, Kind::Function(_)) && open.text.trim().is_empty())
        {
            self.delta("{}", vec![]);
        }
        self.close("completed");
    }

    /// Closes what was under way. It is whole unless the limit cut it, and a call is whole only if it has ended.
    fn leave(&mut self, is_cut: bool) {
        let is_call = self.open.as_ref().is_some_and(|open| open.kind.call().is_some());
        self.close(if is_cut || is_call { "incomplete" } else { "completed" });
    }

    fn close(&mut self, status: &'static str) {
        let Some(mut open) = self.open.take() else { return };
        let names = open.kind.names();
        let place = self.place(&open);
        let mut data = with(place.clone(), json!({ (names.text): open.text }));
        if open.kind == Kind::Message {
            data["logprobs"] = open.logprobs.clone().into();
        }
        self.emit(names.done, data);
        if let Some(part) = names.part {
            self.emit(part.done, with(place, json!({ "part": open.part() })));
        }
        match open.kind {
            Kind::Reasoning => {
                open.item["summary"] = json!([open.part()]);
                open.item["encrypted_content"] = reasoning::seal(&open.text).into();
            }
            Kind::Message => open.item["content"] = json!([open.part()]),
            Kind::Function(_) | Kind::Custom(_) => open.item[names.text] = open.text.into(),
        }
        open.item["status"] = status.into();
        self.emit("response.output_item.done", json!({ "output_index": self.output.len(), "item": open.item }));
        self.output.push(open.item);
    }

    fn finish(&mut self, end: &TurnEnd, usage: TurnUsage) {
        let is_cut = *end == TurnEnd::Length;
        self.leave(is_cut);
        let usage = json!({
            "input_tokens": usage.prompt,
            "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": 0 },
            "output_tokens": usage.written,
            "output_tokens_details": { "reasoning_tokens": usage.thinking },
            "total_tokens": usage.prompt + usage.written,
        });
        if is_cut {
            let why = json!({ "reason": "max_output_tokens" });
            self.end("response.incomplete", "incomplete", json!({ "incomplete_details": why, "usage": usage }));
        } else {
            self.end("response.completed", "completed", json!({ "usage": usage }));
        }
    }

    fn end(&mut self, name: &'static str, status: &'static str, changes: Value) {
        self.has_ended = true;
        let whole = json!({ "status": status, "output": self.output });
        let response = with(with(with(self.head.clone(), whole), changes), self.echo.clone().into());
        self.emit(name, json!({ "response": response }));
    }

    /// What all events of an item's text say.
    fn place(&self, open: &Open) -> Value {
        let mut place = json!({ "item_id": open.item["id"], "output_index": self.output.len() });
        if let Some(part) = open.kind.names().part {
            place[part.index] = 0.into();
        }
        place
    }

    fn emit(&mut self, name: &'static str, data: Value) {
        self.ready.push((name, with(json!({ "type": name, "sequence_number": self.sequence }), data)));
        self.sequence += 1;
    }
}

impl Open {
    /// The only part, as far as it is.
    fn part(&self) -> Value {
        match self.kind {
            Kind::Reasoning => json!({ "type": "summary_text", "text": self.text }),
            _ => json!({ "type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs }),
        }
    }
}

/// An object with the fields of another.
fn with(mut object: Value, fields: Value) -> Value {
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    object
}
