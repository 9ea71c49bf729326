//! Golden programs: what each family records. A refactor leaves them as they are; a fused op changes them on purpose.

use kapitsa_ops::{Capacity, Recorder};
use kapitsa_testkit::fixture;
use kapitsa_weights::Checkpoint;

fn program(case: &str) -> String {
    let model = kapitsa_models::load(&Checkpoint::open(&fixture(case)).unwrap()).unwrap();
    let mut rec = Recorder::new(Capacity { rows: 8, wanted: 2 }, &[]);
    let logits = model.forward(&mut rec);
    rec.finish(logits).to_string()
}

#[test]
fn programs_are_as_recorded() {
    for case in ["llama", "qwen2", "qwen3", "qwen3_moe"] {
        insta::assert_snapshot!(case, program(&format!("oracle/models/{case}")));
    }
}
