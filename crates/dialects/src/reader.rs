//! An answer as it comes, to reasoning, content and calls.

use std::sync::Arc;

use crate::answer::Answer;
use crate::draft::Draft;
use crate::event::Events;
use crate::look::{Cursor, Look, Miss, is};
use crate::{Dialect, End, Event};

/// A tool that was declared to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// What calls name it by.
    pub name: String,
    /// JSON schema of the arguments. Says which values between tags are text.
    pub parameters: serde_json::Value,
}

/// Reads an answer as it comes. See the crate for the rules.
///
/// ```
/// use kapitsa_dialects::{Dialect, End, Event, Reader, Tool};
///
/// let tools = [Tool { name: "ls".into(), parameters: serde_json::json!({}) }];
/// let mut reader = Reader::new(Dialect::HermesJson, &tools, false);
/// let mut events = vec![];
/// for piece in ["Let me look. <tool", "_call>{\"name\": \"ls\", \"argum", "ents\": {}}</tool_call>"] {
///     reader.push(piece, &mut events);
/// }
/// reader.finish(End::Stop, &mut events);
/// assert_eq!(events, [
///     Event::Content("Let me look. ".into()),
///     Event::CallBegins { index: 0, name: "ls".into() },
///     Event::CallArguments { index: 0, json: "{}".into() },
///     Event::CallEnds { index: 0 },
/// ]);
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    /// Text that has come and not been read.
    held: String,
    phase: Phase,
    answer: Answer,
    /// Reads what is thought, for calls.
    draft: Option<Draft>,
    work: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing but white space has come: `<think>` may.
    Start,
    /// After `<think>`, where newlines are dropped.
    ThinkStart,
    Think,
    /// After `</think>`, where newlines are dropped.
    ThinkEnd,
    Answer,
}

impl Reader {
    /// A reader for one answer. Without tools everything but reasoning is content. `starts_in_reasoning` says that the
    /// prompt ends within `<think>`.
    pub fn new(dialect: Dialect, tools: &[Tool], starts_in_reasoning: bool) -> Self {
        let answer = Answer::new(dialect, Arc::from(tools));
        let mut reader = Self { held: String::new(), phase: Phase::Start, answer, draft: None, work: 0 };
        if starts_in_reasoning {
            reader.think();
        }
        reader
    }

    /// Adds a piece of the answer and puts out what it made certain.
    pub fn push(&mut self, text: &str, events: &mut Vec<Event>) {
        let mut events = Events::new(events);
        if self.phase == Phase::Answer {
            return self.answer.push(text, &mut events);
        }
        self.held.push_str(text);
        self.run(false, &mut events);
    }

    /// The answer is over: puts out what is left.
    pub fn finish(&mut self, end: End, events: &mut Vec<Event>) {
        let mut events = Events::new(events);
        self.run(true, &mut events);
        self.answer.finish(end, &mut events);
        if let Some(draft) = self.draft.take()
            && end == End::Stop
        {
            draft.deliver(0, &mut events);
        }
    }

    fn think(&mut self) {
        self.phase = Phase::ThinkStart;
        self.draft = Some(Draft::new(self.answer.clone()));
    }

    fn run(&mut self, last: bool, events: &mut Events<'_>) {
        let held = std::mem::take(&mut self.held);
        let mut at = Cursor { rest: &held, last };
        while !at.rest.is_empty() && self.step(&mut at, events).is_ok() {
            self.work += 1;
        }
        self.work += at.rest.len();
        self.held = at.rest.into();
    }

    fn step(&mut self, at: &mut Cursor<'_>, events: &mut Events<'_>) -> Look<()> {
        match self.phase {
            Phase::Start => {
                let mut look = *at;
                match look.space().and_then(|()| look.literal("<think>")) {
                    Err(Miss::Open) => return Err(Miss::Open),
                    Err(Miss::Other) => self.phase = Phase::Answer,
                    Ok(()) => {
                        *at = look;
                        self.think();
                    }
                }
            }
            Phase::ThinkStart => {
                at.take_while(|c| c == '\n');
                if at.peek()?.is_some() && !is(at.literal("<think>"))? {
                    self.phase = Phase::Think;
                }
            }
            Phase::Think => {
                let mut end = *at;
                let newline = usize::from(end.rest.starts_with('\n'));
                end.take(newline);
                match end.literal("</think>") {
                    Err(Miss::Open) => return Err(Miss::Open),
                    Ok(()) => {
                        *at = end;
                        self.phase = Phase::ThinkEnd;
                        self.draft = None;
                    }
                    Err(Miss::Other) => {
                        let rest = &at.rest[at.rest.chars().next().map_or(0, char::len_utf8)..];
                        let more = rest.find(['\n', '<']).unwrap_or(rest.len());
                        let text = at.take(at.rest.len() - rest.len() + more);
                        events.reasoning(text);
                        if let Some(draft) = &mut self.draft {
                            draft.push(text);
                        }
                    }
                }
            }
            Phase::ThinkEnd => {
                at.take_while(|c| c == '\n');
                if !at.rest.is_empty() {
                    self.phase = Phase::Start;
                }
            }
            Phase::Answer => self.answer.push(at.take(at.rest.len()), events),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the text in pieces of 20 bytes. Gives the events, the work done and the most that was held back.
    fn read(dialect: Dialect, text: &str, starts_in_reasoning: bool) -> (Vec<Event>, usize, usize) {
        let tools = [Tool { name: "write".into(), parameters: serde_json::json!({}) }];
        let mut reader = Reader::new(dialect, &tools, starts_in_reasoning);
        let mut events = vec![];
        let mut held = 0;
        for piece in text.as_bytes().chunks(20) {
            reader.push(std::str::from_utf8(piece).unwrap(), &mut events);
            held = held.max(reader.held.len() + reader.answer.held());
        }
        let draft = reader.draft.as_ref().map_or(0, Draft::work);
        (events, reader.work + reader.answer.work() + draft, held)
    }

    #[test]
    fn long_arguments_stream_in_linear_work() {
        let code = "if (a < b && c[\"x\"] == '}') {\n    return \"</p>\"; // `\n}\n".repeat(6000);
        let json = serde_json::json!({ "content": code }).to_string();
        let encoded = serde_json::Value::String(json.clone());
        for (dialect, text) in [
            (Dialect::HermesJson, format!("<tool_call>{{\"name\": \"write\", \"arguments\": {json}}}</tool_call>")),
            (Dialect::HermesJson, format!("<tool_call>{{\"name\": \"write\", \"arguments\": {encoded}}}</tool_call>")),
            (Dialect::PlainJson, format!("{{\"name\": \"write\", \"parameters\": {json}}}")),
            (Dialect::QwenXml, format!("<function=write><parameter=content>{code}</parameter></function>")),
            (
                Dialect::Glm,
                format!("<tool_call>write<arg_key>content</arg_key><arg_value>{code}</arg_value></tool_call>"),
            ),
            (Dialect::QwenXml, code.clone()),
        ] {
            for starts_in_reasoning in [false, true] {
                let (events, work, held) = read(dialect, &text, starts_in_reasoning);
                assert!(text.len() > 300_000 && events.len() > text.len() / 40, "{} events", events.len());
                assert!(work < 4 * text.len(), "{dialect:?}: {work} steps for {} bytes", text.len());
                assert!(held < 512, "{dialect:?}: {held} bytes held back");
            }
        }
    }
}
