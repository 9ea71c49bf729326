//! Golden programs: what each family records. A refactor leaves them as they are; a fused op changes them on purpose.

use kapitsa_models::Model;
use kapitsa_ops::{Capacity, Recorder, Tensor};
use kapitsa_testkit::fixture;
use kapitsa_weights::Checkpoint;

fn load(case: &str) -> Box<dyn Model> {
    kapitsa_models::load(&Checkpoint::open(&fixture(&format!("oracle/models/{case}"))).unwrap()).unwrap()
}

fn program(forward: impl FnOnce(&mut Recorder) -> Tensor) -> String {
    let mut rec = Recorder::new(Capacity { rows: 8, wanted: 2 }, &[]);
    let result = forward(&mut rec);
    rec.finish(result).to_string()
}

#[test]
fn programs_are_as_recorded() {
    for case in ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "nemotron_h", "nemotron_h-latent"] {
        let model = load(case);
        insta::assert_snapshot!(case, program(|rec| model.forward(rec)));
    }
}

#[test]
fn programs_beside_the_trunk_are_as_recorded() {
    let model = load("qwen3_5");
    insta::assert_snapshot!("prediction_head", program(|rec| model.prediction_head().unwrap().forward(rec)));
    insta::assert_snapshot!("vision_tower", program(|rec| model.vision().unwrap().forward(rec)));
}
