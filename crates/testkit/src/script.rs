//! A backend that says what a test wants: any dialogue can be played through the real engine and server.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use kapitsa_ops::kv::PageId;
use kapitsa_ops::state::{StateId, StateLayout};
use kapitsa_ops::{Backend, Batch, DeviceError, Outputs, Program};
use kapitsa_tensor::Weight;

/// Replies in the order in which they will be asked for: one for each sequence whose first token is wanted. After its last
/// token a reply ends.
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
        Box::new(Player { script: self.clone(), end, playing: HashMap::new() })
    }
}

/// How much likelier the scripted token is than any other.
const CERTAIN: f32 = 100.0;

struct Player {
    script: Script,
    end: u32,
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

    fn copy_page(&mut self, _: usize, _: PageId, _: PageId) {}

    fn commit(&mut self, _: &Program, _: &Batch, _: usize, _: &[usize]) {}

    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError> {
        for row in 0..batch.len() {
            if batch.position(row) == 0 {
                self.playing.remove(&batch.context(row).pages[0][0]);
            }
        }
        for &row in batch.wanted() {
            let (page, position) = (batch.context(row).pages[0][0], batch.position(row));
            let (first, reply) = self.playing.entry(page).or_insert_with(|| {
                let mut replies = self.script.replies.lock().expect("no test has failed");
                (position, replies.pop_front().unwrap_or_default())
            });
            let token = reply.get(position - *first).copied().unwrap_or(self.end);
            let start = outputs.logits.len();
            outputs.logits.resize(start + program.logits().width(), 0.0);
            outputs.logits[start + token as usize] = CERTAIN;
        }
        Ok(())
    }
}
