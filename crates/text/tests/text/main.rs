//! Tests of the public interface against the reference libraries and against hostile input.

mod fixtures;
mod hostile;
mod real_models;
mod streaming;
mod templates;
mod tokenizers;
