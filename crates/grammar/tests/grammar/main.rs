//! Grammars in the tokens of small and of real models.

mod agents;
mod common;
mod compose;
mod lark;
mod lark_json;
mod limits;
mod refused;
mod schemas;
mod tagged;
mod vocabulary;
mod walks;
