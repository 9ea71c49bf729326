//! Turns of the assistant: what is heard of them, and what they are held to.

mod agents;
mod common;
mod enforced;
mod events;
