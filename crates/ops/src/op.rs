//! The closed list of ops.

use std::fmt::Debug;

use crate::reference::Memory;
use crate::*;

/// What every op provides beside its arguments.
pub trait Rule: Debug {
    /// Tensors it reads.
    fn inputs(&self) -> Vec<Tensor>;

    /// The tensor it writes; `None` for an op that only changes sequence state.
    fn output(&self) -> Option<Tensor>;

    /// Asserts that shapes and types fit. Runs when the op is recorded, so backends see checked ops only.
    fn check(&self);

    /// The op's definition, written to be checked by hand.
    fn reference(&self, memory: &mut Memory<'_>);

    /// For a recurrent op: its index among them, and how many values it keeps of a sequence.
    fn state(&self) -> Option<(usize, usize)> {
        None
    }

    /// For a recurrent op: moves the state of `sequence` on over the rows `path`, from what they gave it when it last ran.
    fn commit(&self, _memory: &mut Memory<'_>, _sequence: usize, _path: &[usize]) {}
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One recorded op.
        #[derive(Clone, Debug)]
        pub enum Op { $($(#[$doc])* $name($name)),* }

        impl Op {
            /// The op's rule.
            pub fn rule(&self) -> &dyn Rule {
                match self { $(Op::$name(op) => op),* }
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op { Op::$name(op) }
        })*
    };
}

ops! {
    /// Rows of the embedding matrix.
    Embed,
    /// Matrix product with a weight.
    Linear,
    /// Root-mean-square normalisation.
    RmsNorm,
    /// Cosines and sines of the rows' positions.
    RotaryAngles,
    /// Rotary position embedding.
    Rotary,
    /// Keys and values into the KV cache.
    KvWrite,
    /// Attention over the KV cache.
    Attention,
    /// Attention of the rows of a sequence to each other.
    FullAttention,
    /// Activation of a gated MLP.
    SiluMul,
    /// Gate of an attention layer or a shared expert.
    SigmoidMul,
    /// Activation of Nemotron's MLPs.
    Relu2,
    /// Activation of vision towers.
    Gelu,
    /// Mean and variance normalisation.
    LayerNorm,
    /// Short causal convolution.
    ShortConv,
    /// Gated delta rule.
    GatedDelta,
    /// State-space scan of Mamba-2.
    Mamba2,
    /// Values that rows bring along.
    Input,
    /// Some columns of a tensor.
    Columns,
    /// Two tensors side by side.
    Concat,
    /// Rows side by side.
    MergeRows,
    /// Sum of two tensors.
    Add,
    /// Wanted rows only.
    GatherRows,
    /// Router scores that a bias steers.
    RouterScores,
    /// The experts of each row.
    Route,
    /// The weights of each row's experts.
    ExpertWeights,
    /// Matrix products with each row's experts.
    ExpertLinear,
    /// Weighted sum of each row's experts.
    ExpertCombine,
}
