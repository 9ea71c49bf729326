//! A turn while it is made: the reply's text taken apart into thinking, text and calls.

use std::collections::{HashSet, VecDeque};

use kapitsa_dialects::{Dialect, End, Event, Reader};

use super::text_input::TextInput;
use super::{TEXT_INPUT, Tool, ToolInput, TurnEnd, TurnEvent, TurnRequest, TurnUsage};
use crate::stream::{ReplyEvent, ReplyStream, ReplyToken};
use crate::{Error, FinishReason, Reply};

/// A turn under way. Dropping it cancels it.
pub struct TurnStream {
    reply: ReplyStream,
    reader: Reader,
    /// What the reader has put out, to be passed on.
    read: Vec<Event>,
    /// Names of tools that take text.
    text_tools: HashSet<String>,
    /// Reads the input of a call whose tool takes text.
    text_input: Option<TextInput>,
    stops: Vec<String>,
    /// The turn ends with its first call.
    one_call: bool,
    calls: usize,
    thinking: usize,
    /// Tokens of what the reader holds back.
    tokens: Vec<ReplyToken>,
    ready: VecDeque<TurnEvent>,
}

impl TurnStream {
    /// `thinks`: whether the prompt ends in thinking that the model goes on with.
    pub(crate) fn new(reply: ReplyStream, dialect: Dialect, request: &TurnRequest, thinks: bool) -> Self {
        // Without tools a call is text, whatever it looks like.
        let tools = request.offered_tools();
        let declared: Vec<_> = tools.iter().map(declared).collect();
        let text_tools = tools.iter().filter(|tool| matches!(tool.input, ToolInput::Text { .. }));
        TurnStream {
            reply,
            reader: Reader::new(dialect, &declared, thinks),
            read: vec![],
            text_tools: text_tools.map(|tool| tool.name.clone()).collect(),
            text_input: None,
            stops: request.stops.clone(),
            one_call: request.one_call,
            calls: 0,
            thinking: 0,
            tokens: vec![],
            ready: VecDeque::new(),
        }
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.reply.prompt_tokens()
    }

    /// Waits for the next event; `None` after [`TurnEvent::Finished`] or an error.
    ///
    /// # Errors
    /// If the device fails or the engine stops.
    ///
    /// # Panics
    /// In an asynchronous task, which [`next`](Self::next) is for.
    pub fn recv(&mut self) -> Option<Result<TurnEvent, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.reply.recv()? {
                Ok(event) => self.hear(event),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`recv`](Self::recv), for asynchronous tasks. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn next(&mut self) -> Option<Result<TurnEvent, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.reply.next().await? {
                Ok(event) => self.hear(event),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn hear(&mut self, event: ReplyEvent) {
        match event {
            ReplyEvent::Prefill(read) => self.ready.push_back(TurnEvent::Prefill(read)),
            ReplyEvent::Piece { text, tokens } => {
                self.tokens.extend(tokens);
                self.reader.push(&text, &mut self.read);
                self.pass_on();
            }
            ReplyEvent::Finished(reply) => {
                let is_cut = reply.reason == FinishReason::Length;
                self.reader.finish(if is_cut { End::Length } else { End::Stop }, &mut self.read);
                self.pass_on();
                if self.tokens.iter().any(|token| token.logprobs.is_some()) {
                    // Of tokens without text.
                    self.ready
                        .push_back(TurnEvent::Text { text: String::new(), tokens: std::mem::take(&mut self.tokens) });
                }
                self.finish(reply);
            }
        }
    }

    /// Passes on what was read. Tokens go with the first text in it; those of thinking are counted.
    fn pass_on(&mut self) {
        if self.read.is_empty() {
            return;
        }
        let mut tokens = std::mem::take(&mut self.tokens);
        if self.read.iter().all(|event| matches!(event, Event::Reasoning(_))) {
            self.thinking += tokens.len();
        }
        for event in std::mem::take(&mut self.read) {
            if self.one_call && self.calls == 1 {
                return;
            }
            let event = match event {
                Event::Reasoning(text) => TurnEvent::Thinking(text),
                Event::Content(text) => TurnEvent::Text { text, tokens: std::mem::take(&mut tokens) },
                Event::CallBegins { index, name } => {
                    self.text_input = self.text_tools.contains(&name).then(TextInput::default);
                    TurnEvent::CallBegins { index, name }
                }
                Event::CallArguments { index, json } => match &mut self.text_input {
                    Some(input) => {
                        let piece = input.push(&json);
                        if piece.is_empty() {
                            continue;
                        }
                        TurnEvent::CallInput { index, piece }
                    }
                    None => TurnEvent::CallInput { index, piece: json },
                },
                Event::CallEnds { index } => {
                    self.calls += 1;
                    if self.one_call {
                        self.reply.cancel();
                    }
                    let rest = self.text_input.take().map(TextInput::finish).filter(|rest| !rest.is_empty());
                    self.ready.extend(rest.map(|piece| TurnEvent::CallInput { index, piece }));
                    TurnEvent::CallEnds { index }
                }
            };
            self.ready.push_back(event);
        }
    }

    fn finish(&mut self, reply: Reply) {
        let end = match reply.reason {
            FinishReason::Length => TurnEnd::Length,
            FinishReason::StopText(index) => TurnEnd::StopText(self.stops[index].clone()),
            FinishReason::EndOfTurn | FinishReason::Cancelled if self.calls > 0 => TurnEnd::Calls,
            FinishReason::EndOfTurn | FinishReason::Cancelled => TurnEnd::Turn,
        };
        let usage = TurnUsage {
            prompt: reply.prompt_tokens,
            cached: 0,
            written: reply.reply_tokens,
            thinking: self.thinking.min(reply.reply_tokens),
        };
        self.ready.push_back(TurnEvent::Finished { end, usage });
    }
}

/// What a reader needs to know of a tool.
fn declared(tool: &Tool) -> kapitsa_dialects::Tool {
    let parameters = match &tool.input {
        ToolInput::Json { schema, .. } => schema.clone(),
        ToolInput::Text { .. } => serde_json::json!({"type": "object", "properties": {TEXT_INPUT: {"type": "string"}}}),
    };
    kapitsa_dialects::Tool { name: tool.name.clone(), parameters }
}
