//! What was said, and what a line means. Pure.

use kapitsa::Message;

/// Shown by `/help`.
pub(crate) const HELP: &str = "\
/new          forget the conversation
/system TEXT  set the instructions that come first; without TEXT, show them
/undo         drop the last message and its answer
/retry        answer the last message again, with a new seed
/stats        tokens, room in the context, speeds
/help         this list
/quit         end the chat; so does Ctrl-D
//...         a message that starts with a slash
Ctrl-C stops an answer; what was said of it stays.";

/// A line that was typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Empty,
    Message(String),
    Command(Command),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    New,
    /// Set the system message, or show it.
    System(Option<String>),
    Undo,
    Retry,
    Stats,
    Quit,
}

/// Reads a line; the error is for the user.
pub(crate) fn parse(line: &str) -> Result<Line, String> {
    let Some(rest) = line.strip_prefix('/') else {
        let is_empty = line.trim().is_empty();
        return Ok(if is_empty { Line::Empty } else { Line::Message(line.into()) });
    };
    if rest.starts_with('/') {
        return Ok(Line::Message(rest.into()));
    }
    let (name, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let text = Some(text.trim()).filter(|text| !text.is_empty());
    let command = match name {
        "system" => return Ok(Line::Command(Command::System(text.map(String::from)))),
        "help" => Command::Help,
        "new" => Command::New,
        "undo" => Command::Undo,
        "retry" => Command::Retry,
        "stats" => Command::Stats,
        "quit" => Command::Quit,
        _ => {
            let name: String = name.chars().take(40).collect();
            return Err(format!(
                "unknown command `/{name}`; /help lists the commands, // starts a message with a slash"
            ));
        }
    };
    match text {
        Some(_) => Err(format!("/{name} takes no text; /help lists the commands")),
        None => Ok(Line::Command(command)),
    }
}

/// Messages and their answers.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) system: Option<String>,
    exchanges: Vec<Exchange>,
    /// A message that could not be answered.
    unanswered: Option<String>,
}

#[derive(Debug)]
struct Exchange {
    message: String,
    answer: String,
}

impl Conversation {
    /// Nothing said yet.
    pub(crate) fn new(system: Option<String>) -> Self {
        Conversation { system, exchanges: vec![], unanswered: None }
    }

    /// All messages so far, and `message`.
    pub(crate) fn messages(&self, message: &str) -> Vec<Message> {
        let system = self.system.iter().map(Message::system);
        let said = self
            .exchanges
            .iter()
            .flat_map(|exchange| [Message::user(&exchange.message), Message::assistant(&exchange.answer)]);
        system.chain(said).chain([Message::user(message)]).collect()
    }

    /// `message` was answered, maybe not to the end.
    pub(crate) fn add(&mut self, message: String, answer: String) {
        self.exchanges.push(Exchange { message, answer });
        self.unanswered = None;
    }

    /// `message` could not be answered: it waits for `/retry`.
    pub(crate) fn keep(&mut self, message: String) {
        self.unanswered = Some(message);
    }

    /// Forgets all but the instructions and a message without answer.
    pub(crate) fn clear(&mut self) {
        self.exchanges.clear();
    }

    /// Drops the last exchange; `false` if there is none.
    pub(crate) fn undo(&mut self) -> bool {
        self.exchanges.pop().is_some()
    }

    /// Takes out the message to be answered again: the one without an answer, or else the last.
    pub(crate) fn retry(&mut self) -> Option<String> {
        self.unanswered.take().or_else(|| self.exchanges.pop().map(|exchange| exchange.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let message = |text: &str| Ok(Line::Message(text.into()));
        let command = |command| Ok(Line::Command(command));
        assert_eq!(parse("hello /new"), message("hello /new"));
        assert_eq!(parse("  /new"), message("  /new"));
        assert_eq!(parse("//etc/hosts is a file"), message("/etc/hosts is a file"));
        assert_eq!(parse(" \t"), Ok(Line::Empty));
        assert_eq!(parse("/new "), command(Command::New));
        assert_eq!(parse("/system  be brief "), command(Command::System(Some("be brief".into()))));
        assert_eq!(parse("/system"), command(Command::System(None)));
        for (line, expected) in [
            ("/help", Command::Help),
            ("/undo", Command::Undo),
            ("/retry", Command::Retry),
            ("/stats", Command::Stats),
            ("/quit", Command::Quit),
        ] {
            assert_eq!(parse(line), command(expected));
        }
        for line in ["/x", "/", "/newer", "/Quit", "/etc/hosts is a file"] {
            assert!(parse(line).unwrap_err().contains("/help"), "{line}");
        }
        assert_eq!(parse("/undo it").unwrap_err(), "/undo takes no text; /help lists the commands");
        assert!(parse(&format!("/{}", "x".repeat(9999))).unwrap_err().len() < 150);
    }

    fn said(conversation: &Conversation, next: &str) -> Vec<String> {
        let text = |message: Message| format!("{} {}", message.role, message.content.as_str().unwrap());
        conversation.messages(next).into_iter().map(text).collect()
    }

    #[test]
    fn everything_said_is_sent_in_order() {
        let mut conversation = Conversation::new(Some("s".into()));
        conversation.add("a".into(), "b".into());
        conversation.add("c".into(), "d".into());
        assert_eq!(said(&conversation, "e"), ["system s", "user a", "assistant b", "user c", "assistant d", "user e"]);
        assert!(conversation.undo());
        assert_eq!(said(&conversation, "e"), ["system s", "user a", "assistant b", "user e"]);
        conversation.clear();
        assert_eq!(said(&conversation, "e"), ["system s", "user e"]);
        assert!(!conversation.undo());
    }

    #[test]
    fn a_message_that_could_not_be_answered_is_the_next_to_be_tried() {
        let mut conversation = Conversation::new(None);
        conversation.add("a".into(), "b".into());
        conversation.keep("c".into());
        conversation.undo();
        conversation.clear();
        assert_eq!(conversation.retry().as_deref(), Some("c"));
        assert_eq!(conversation.retry(), None);
        conversation.add("c".into(), "d".into());
        assert_eq!(conversation.retry().as_deref(), Some("c"));
        assert_eq!(said(&conversation, "c"), ["user c"]);
    }
}
