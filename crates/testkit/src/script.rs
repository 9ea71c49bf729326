//! A backend that says what a test wants: any dialogue can be played through the real engine and server.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use kapitsa_ops::kv::{PAGE_TOKENS, PageId};
use kapitsa_ops::state::{StateId, StateLayout};
use kapitsa_ops::{Backend, Batch, DeviceError, Outputs, Program};
use kapitsa_tensor::Weight;

use crate::tiny;

/// Replies in the order in which they will be asked for: one for each sequence whose first token is wanted. After its last
/// token a reply ends.
///
/// When no reply is left, the conversation says what is said: the text of the last `<<say:TEXT>>` in the prompt, if the tokens
/// are those of [`tiny`]. So a client alone can play any dialogue.
#[derive(Clone, Default)]
pub struct Script {
    replies: Arc<Mutex<VecDeque<Vec<u32>>>>,
}

impl Script {
    /// Adds a reply of these tokens.
    pub fn say(&self, tokens: Vec<u32>) {
        self.replies.lock().expect("no test has failed").push_back(tokens);
    }

    /// A backend that plays the script. `end` is the token that ends a turn.
    pub fn backend(&self, end: u32) -> Box<dyn Backend> {
        Box::new(Player { script: self.clone(), end, written: HashMap::new(), playing: HashMap::new() })
    }
}

/// How much likelier the scripted token is than any other.
const CERTAIN: f32 = 100.0;

struct Player {
    script: Script,
    end: u32,
    /// The tokens in each page of the first group.
    written: HashMap<PageId, [u32; PAGE_TOKENS]>,
    /// For the sequence that begins in a page: the position of its first wanted row, and its reply.
    playing: HashMap<PageId, (usize, Vec<u32>)>,
}

impl Backend for Player {
    fn load(&mut self, _: &Program, _: &mut dyn FnMut(&Weight)) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve(&mut self, _: usize, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve_states(&mut self, _: &StateLayout, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn save_state(&self, _: StateId) -> Vec<f32> {
        vec![]
    }

    fn load_state(&mut self, _: StateId, _: &[f32]) {}

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        if let Some(tokens) = self.written.get(&from).copied().filter(|_| group == 0) {
            self.written.insert(to, tokens);
        }
    }

    fn commit(&mut self, _: &Program, _: &Batch, _: usize, _: &[usize]) {}

    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError> {
        for row in 0..batch.len() {
            let (pages, position) = (&batch.context(row).pages[0], batch.position(row));
            if position == 0 {
                self.playing.remove(&pages[0]);
            }
            let page = self.written.entry(pages[position / PAGE_TOKENS]).or_insert([self.end; PAGE_TOKENS]);
            page[position % PAGE_TOKENS] = batch.token(row);
        }
        for &row in batch.wanted() {
            let (pages, position) = (&batch.context(row).pages[0], batch.position(row));
            let (first, reply) = self.playing.entry(pages[0]).or_insert_with(|| {
                let next = self.script.replies.lock().expect("no test has failed").pop_front();
                (position, next.unwrap_or_else(|| wished(&self.written, pages, position + 1)))
            });
            let token = reply.get(position - *first).copied().unwrap_or(self.end);
            let start = outputs.logits.len();
            outputs.logits.resize(start + program.logits().width(), 0.0);
            outputs.logits[start + token as usize] = CERTAIN;
        }
        Ok(())
    }
}

/// What a conversation of so many tokens in these pages wants to be said.
fn wished(written: &HashMap<PageId, [u32; PAGE_TOKENS]>, pages: &[PageId], len: usize) -> Vec<u32> {
    let tokens: Vec<u32> = (0..len).map(|at| written[&pages[at / PAGE_TOKENS]][at % PAGE_TOKENS]).collect();
    let prompt = tiny::text(&tokens);
    let wish = prompt.rsplit_once("<<say:").and_then(|(_, rest)| rest.split_once(">>"));
    tiny::tokens(wish.map_or("", |(wish, _)| wish))
}
