//! The completions that a request asks for, on their way to the client: whole or as they are made.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, select_all, unfold};
use kapitsa::{Reply, ReplyEvent, ReplyRequest, ReplyStream, ReplyToken};

use super::completions::TextChunks;
use super::usage::Usage;
use crate::app::{App, new_id, now};
use crate::error::ApiError;
use crate::sse;

/// What all answers to one request say of it.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
}

/// Replies under way. Dropping them cancels all that have not ended.
pub(super) struct Choices {
    pub(super) head: Head,
    pub(super) usage: Usage,
    pub(super) count: usize,
    replies: SelectAll<BoxStream<'static, (usize, Result<ReplyEvent, kapitsa::Error>)>>,
}

impl Choices {
    /// Starts `n` replies to each prompt. Seeds count up, so that they differ.
    ///
    /// # Errors
    /// If one of them cannot be served; then none is.
    pub(super) fn start(app: &App, prefix: &str, requests: &[ReplyRequest], n: usize) -> Result<Self, ApiError> {
        let mut streams: Vec<ReplyStream> = Vec::with_capacity(requests.len() * n);
        for request in requests {
            for index in 0..n as u64 {
                let mut request = request.clone();
                request.sampling.seed = request.sampling.seed.wrapping_add(index);
                streams.push(app.llm.start(request)?);
            }
        }
        let usage = Usage::new(requests.iter().map(|request| request.prompt.tokens.len()).sum());
        let count = streams.len();
        let head = Head { id: new_id(prefix), created: now(), model: app.model.id.clone() };
        let replies = select_all(streams.into_iter().enumerate().map(|(index, stream)| {
            let next = move |mut stream: ReplyStream| async move {
                let event = stream.next().await?;
                Some(((index, event), stream))
            };
            unfold(stream, next).boxed()
        }));
        Ok(Choices { head, usage, count, replies })
    }

    /// Reads all replies to their ends. `hear` is told of every piece of a choice and of its end.
    pub(super) async fn whole(mut self, mut hear: impl FnMut(usize, ReplyPart)) -> Result<(Head, Usage), ApiError> {
        while let Some((index, event)) = self.replies.next().await {
            match event? {
                ReplyEvent::Prefill(_) => {}
                ReplyEvent::Piece { text, tokens } => hear(index, ReplyPart::Piece(text, tokens)),
                ReplyEvent::Finished(reply) => {
                    self.usage.add(reply.reply_tokens);
                    hear(index, ReplyPart::End(reply));
                }
            }
        }
        Ok((self.head, self.usage))
    }

    /// The events of a stream.
    pub(super) fn events(self, app: &Arc<App>, chunks: TextChunks, include_usage: bool) -> sse::Events {
        let Choices { usage, count, replies, .. } = self;
        let writer = Writer { chunks, usage, include_usage, replies, open: count, ready: VecDeque::new() };
        let events = unfold(writer, |mut writer| async move { Some((writer.next().await?, writer)) });
        sse::with_signs_of_life(events.boxed(), app.options.limits.keep_alive)
    }
}

/// What a reader of whole replies hears.
pub(super) enum ReplyPart {
    Piece(String, Vec<ReplyToken>),
    End(Reply),
}

struct Writer {
    chunks: TextChunks,
    usage: Usage,
    include_usage: bool,
    replies: SelectAll<BoxStream<'static, (usize, Result<ReplyEvent, kapitsa::Error>)>>,
    /// Choices that have not ended.
    open: usize,
    ready: VecDeque<String>,
}

impl Writer {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let (index, event) = self.replies.next().await?;
            match event {
                Ok(ReplyEvent::Prefill(_)) => {}
                Ok(ReplyEvent::Piece { text, tokens }) => {
                    let chunk = self.chunks.piece(index, text, &tokens);
                    self.ready.push_back(sse::data(&chunk));
                }
                Ok(ReplyEvent::Finished(reply)) => self.end(index, reply),
                Err(error) => {
                    // All of it ends, without the word that it is complete.
                    self.replies.clear();
                    self.ready.push_back(sse::data(ApiError::from(error).body()));
                }
            }
        }
    }

    fn end(&mut self, index: usize, reply: Reply) {
        self.usage.add(reply.reply_tokens);
        let chunk = self.chunks.end(index, reply.reason.name());
        self.ready.push_back(sse::data(&chunk));
        self.open -= 1;
        if self.open == 0 {
            if self.include_usage {
                let chunk = self.chunks.usage(self.usage);
                self.ready.push_back(sse::data(&chunk));
            }
            self.ready.push_back(sse::DONE.to_owned());
        }
    }
}
