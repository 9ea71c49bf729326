//! What happens while a turn is made.

use crate::ReplyToken;

/// An event of a turn. The last one is `Finished`. Pieces of one kind follow each other without an end of their own: thinking ends where
/// text or a call begins, text where a call begins, a call with `CallEnds`.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// So many tokens of the prompt are read.
    Prefill(usize),
    /// More thinking.
    Thinking(String),
    /// More text for the user.
    Text {
        /// Whole characters.
        text: String,
        /// The tokens that begin in it, if log-probabilities were asked for.
        tokens: Vec<ReplyToken>,
    },
    /// A call of a tool begins.
    CallBegins {
        /// Counts the calls of the turn from 0.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// More of a call's input: of one JSON object, or of text for a tool that takes text.
    CallInput {
        /// Which call.
        index: usize,
        /// The next piece.
        piece: String,
    },
    /// A call is complete. A call that the limit cut has no end.
    CallEnds {
        /// Which call.
        index: usize,
    },
    /// The turn is over.
    Finished {
        /// Why.
        end: TurnEnd,
        /// What it took.
        usage: TurnUsage,
    },
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The model ended it, without a call.
    Turn,
    /// The model ended it after at least one call.
    Calls,
    /// The text ran into this stop text.
    StopText(String),
    /// `max_tokens` or the context is used up.
    Length,
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnUsage {
    /// Of the prompt, cached ones included.
    pub prompt: usize,
    /// Of the prompt, those whose state was kept from earlier requests.
    pub cached: usize,
    /// Of the turn, thinking included.
    pub written: usize,
    /// Of thinking.
    pub thinking: usize,
}
