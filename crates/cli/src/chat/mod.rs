//! `kapitsa chat`: a conversation in the terminal.

mod conversation;
mod lines;

use kapitsa::{FinishReason, Llm, Reply, ReplyRequest, SamplingOptions};

use crate::args::ChatArgs;
use crate::output::{self, Failure, note, print};
use crate::reply::{self, Times};
use crate::{interrupt, progress};
use conversation::{Command, Conversation, HELP, Line, parse};
use lines::{Lines, Next};

pub(crate) fn run(ChatArgs { answer: args }: ChatArgs) -> Result<(), Failure> {
    let path = progress::resolve(args.model.as_deref())?;
    let llm = progress::open(&path, &args.device.options())?;
    if !llm.has_chat_template() {
        let message = "the model has no chat template, so it cannot chat; `kapitsa run` continues a text with it";
        return Err(Failure::Error(message.into()));
    }
    let mut chat = Chat {
        conversation: Conversation::new(args.system),
        sampling: reply::sampling(&args.sampling, llm.default_sampling()),
        llm,
        max_tokens: args.max_tokens,
        last: None,
    };
    let mut lines = Lines::new()?;
    if lines.is_terminal() {
        note(&format!("context {} tokens · /help lists the commands, /quit ends the chat", chat.llm.context()));
    }
    loop {
        interrupt::forget(); // it was about the answer before
        let line = match lines.next()? {
            Next::Line(line) => line,
            Next::Interrupted => {
                note("/quit or Ctrl-D ends the chat");
                continue;
            }
            Next::End => return Ok(()),
        };
        match chat.hear(&line) {
            Ok(Then::Quit) => return Ok(()),
            Ok(Then::GoOn) => {}
            // A person can answer an error or go on after an interruption; a script cannot.
            Err(Failure::Error(message)) if lines.is_terminal() => output::error(&message),
            Err(Failure::Interrupted) if lines.is_terminal() => {
                note("stopped; /retry answers again, /undo drops the message and what was said");
            }
            Err(failure) => return Err(failure),
        }
    }
}

struct Chat {
    llm: Llm,
    conversation: Conversation,
    sampling: SamplingOptions,
    max_tokens: Option<usize>,
    last: Option<(Reply, Times)>,
}

enum Then {
    GoOn,
    Quit,
}

impl Chat {
    /// Does what a line says.
    fn hear(&mut self, line: &str) -> Result<Then, Failure> {
        let command = match parse(line).map_err(Failure::Error)? {
            Line::Empty => return Ok(Then::GoOn),
            Line::Message(message) => return self.answer(message),
            Line::Command(command) => command,
        };
        match command {
            Command::Quit => return Ok(Then::Quit),
            Command::Retry => return self.retry(),
            Command::Help => note(HELP),
            Command::New => {
                self.conversation.clear();
                self.last = None;
                note("the conversation is forgotten");
            }
            Command::System(Some(text)) => {
                self.conversation.system = Some(text);
                note("the instructions are set");
            }
            Command::System(None) => note(self.conversation.system.as_deref().unwrap_or("there are no instructions")),
            Command::Undo if self.conversation.undo() => note("the last message and its answer are dropped"),
            Command::Undo => return Err(Failure::Error("there is nothing to drop".into())),
            Command::Stats => note(&self.statistics()),
        }
        Ok(Then::GoOn)
    }

    fn retry(&mut self) -> Result<Then, Failure> {
        let Some(message) = self.conversation.retry() else {
            return Err(Failure::Error("there is no message to answer again".into()));
        };
        self.sampling.seed = self.sampling.seed.wrapping_add(1);
        if self.sampling.temperature == 0.0 {
            note("the temperature is 0, so the same words give the same answer; --temperature 0.7 would vary it");
        }
        self.answer(message)
    }

    /// Answers `message`. Whatever happens, it is not lost: either it is part of the conversation then, or `/retry` has it.
    fn answer(&mut self, message: String) -> Result<Then, Failure> {
        let answer = match self.try_answer(&message) {
            Ok(answer) => answer,
            Err(failure) => {
                self.conversation.keep(message);
                return Err(failure);
            }
        };
        print("\n")?;
        let reply::Answer { text, reply, times, .. } = answer;
        self.conversation.add(message, text);
        if reply.reply_tokens > 0 {
            self.last = Some((reply, times));
        }
        let context = self.llm.context();
        match reply.reason {
            FinishReason::Cancelled => return Err(Failure::Interrupted),
            FinishReason::Length if reply.prompt_tokens + reply.reply_tokens >= context => {
                note(&format!(
                    "the context of {context} tokens is full, so the answer is cut; /undo or /new makes room"
                ));
            }
            _ => {}
        }
        Ok(Then::GoOn)
    }

    fn try_answer(&self, message: &str) -> Result<reply::Answer, Failure> {
        let prompt = self.llm.chat_prompt(&self.conversation.messages(message), &[], Some(reply::now()))?;
        let (tokens, context) = (prompt.tokens.len(), self.llm.context());
        if tokens >= context {
            return Err(Failure::Error(format!(
                "the conversation has {tokens} tokens with this message, the context {context}; make room by /undo or /new, \
                 then /retry sends the message again"
            )));
        }
        let sampling = self.sampling.clone();
        let request = ReplyRequest { prompt, sampling, stops: vec![], max_tokens: self.max_tokens, logprobs: None };
        reply::answer(&self.llm, &request, true)
    }

    fn statistics(&self) -> String {
        let context = self.llm.context();
        match &self.last {
            Some((reply, times)) => {
                let used = reply.prompt_tokens + reply.reply_tokens;
                format!("context {used} of {context} tokens · {}", reply::statistics(reply, times))
            }
            None => format!("context 0 of {context} tokens"),
        }
    }
}
