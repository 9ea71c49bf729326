//! How many tokens a request took.

use kapitsa::turn::TurnUsage;
use serde::Serialize;
use utoipa::ToSchema;

/// Tokens of a request, over all its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Of the prompts, those that needed no computing included.
    prompt_tokens: usize,
    /// Of the replies.
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokens,
    completion_tokens_details: ReplyTokens,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
struct PromptTokens {
    /// Tokens whose state was kept from earlier requests.
    cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
struct ReplyTokens {
    /// Tokens of thinking.
    reasoning_tokens: usize,
}

impl Usage {
    pub(super) fn new(prompt_tokens: usize) -> Self {
        Usage { prompt_tokens, total_tokens: prompt_tokens, ..Usage::default() }
    }

    /// Adds a turn.
    pub(super) fn add_turn(&mut self, turn: &TurnUsage) {
        self.prompt_tokens_details.cached_tokens = turn.cached;
        self.completion_tokens_details.reasoning_tokens += turn.thinking;
        self.add(turn.written);
    }

    /// Adds a reply.
    pub(super) fn add(&mut self, reply_tokens: usize) {
        self.completion_tokens += reply_tokens;
        self.total_tokens += reply_tokens;
    }
}
