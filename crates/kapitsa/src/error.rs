//! The one error of the facade: a line for the user.

use kapitsa_engine::EngineError;
use kapitsa_ops::DeviceError;
use kapitsa_weights::LoadError;

/// What went wrong, in one line that names the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model's files.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The request.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A context that the model does not have.
    #[error("context is {found}, expected 1 to {trained}: the model was trained for {trained} tokens")]
    Context {
        /// What was asked for.
        found: usize,
        /// What the model has.
        trained: usize,
    },
}
