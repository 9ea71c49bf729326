//! What stands beside the trunk of a model: prediction heads and vision towers, against the numbers of the reference.

mod common;

use std::sync::Arc;

use common::{check_greedy, close, ids, run, runner, sequence};
use kapitsa::{Engine, OpenOptions, open_engine};
use kapitsa_cpu::{Activations, Cpu, CpuOptions};
use kapitsa_engine::Image;
use kapitsa_models::VisionTower;
use kapitsa_ops::kv::KvLayout;
use kapitsa_ops::{Backend, Batch, Capacity, Outputs, Recorder, Tap};
use kapitsa_tensor::DType;
use kapitsa_testkit::{Tensors, fixture};
use kapitsa_weights::Checkpoint;

const CASES: [&str; 2] = ["qwen3_5", "qwen3_5_moe"];
const ATOL: f32 = 1e-3;

fn expected(case: &str) -> Tensors {
    Tensors::open(fixture(&format!("oracle/models/{case}")).join("expected.safetensors"))
}

#[test]
fn prediction_heads() {
    for case in CASES {
        let expected = expected(case);
        let mut runner = runner(&fixture(&format!("oracle/models/{case}")), Activations::F32, 2);
        let prompt = ids(&expected, "seq0.input_ids");
        let mut context = sequence(0);
        let last = Tap::Layer(runner.model().layers - 1);
        let trunk = run(&mut runner, &mut context, &prompt, &[last, Tap::FinalNorm]);
        for (name, tap) in [("post_norm", Tap::FinalNorm), ("pre_norm", last)] {
            let (_, hidden) = trunk.taps.iter().find(|(of, _)| *of == tap).unwrap();
            let width = runner.model().hidden;
            let mut batch = Batch::new();
            let sequence = batch.add_sequence(sequence(1));
            let mut row = None;
            for (at, &next) in prompt[1..].iter().enumerate() {
                let new = batch.add_row(sequence, next, row);
                batch.set_input(new, &hidden[at * width..][..width]);
                batch.want(new);
                row = Some(new);
            }
            let mut outputs = Outputs::default();
            runner.run_prediction_head(&batch, &[Tap::FinalNorm], &mut outputs).unwrap();
            let key = format!("mtp.{name}");
            close(&format!("{case} {key}.logits"), &outputs.logits, &expected.f32(&format!("{key}.logits")), ATOL);
            close(&format!("{case} {key}.hidden"), &outputs.taps[0].1, &expected.f32(&format!("{key}.hidden")), ATOL);
        }
    }
}

/// The two images of a case's prompt.
fn images(expected: &Tensors, prompt: &[u32], image_token: u32) -> Vec<Image> {
    let values = expected.f32("img.pixel_values");
    let patch = expected.shape("img.pixel_values")[1];
    let grids = expected.i64("img.grid_thw");
    let (mut at, mut from) = (0, 0);
    let each = grids.chunks(3).map(|grid| {
        let (rows, columns) = (grid[1] as usize, grid[2] as usize);
        let start = from + prompt[from..].iter().position(|&id| id == image_token).unwrap();
        let patches: Arc<[f32]> = values[at * patch..(at + rows * columns) * patch].into();
        at += rows * columns;
        from = start + rows * columns / 4;
        Image { start, grid: (rows, columns), patches }
    });
    each.collect()
}

#[test]
fn vision_towers() {
    for case in CASES {
        let expected = expected(case);
        let mut runner = runner(&fixture(&format!("oracle/models/{case}")), Activations::F32, 2);
        let image_token = runner.vision().unwrap().image_token;
        let images = images(&expected, &ids(&expected, "img.input_ids"), image_token);
        let taps = [Tap::Embedding, Tap::Layer(0), Tap::Layer(1)];
        let mut all = Outputs::default();
        for image in &images {
            runner.embed_image(image.grid, &image.patches, &taps, &mut all).unwrap();
        }
        close(&format!("{case} embeddings"), &all.logits, &expected.f32("img.image_embeds"), 1e-4);
        for (tap, key) in taps.iter().zip(["img.patch_embed", "img.vision_block.00", "img.vision_block.01"]) {
            let (_, found) = all.taps.iter().find(|(of, _)| of == tap).unwrap();
            close(&format!("{case} {key}"), found, &expected.f32(key), 1e-4);
        }
    }
}

/// Qwen3.8-Flash-Next has the same tower; its language model is not built yet.
#[test]
fn tower_of_qwen4_exp() {
    let folder = fixture("oracle/models/qwen4_exp");
    let expected = Tensors::open(folder.join("expected.safetensors"));
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let tower = VisionTower::load(checkpoint.config(), &checkpoint.weights()).unwrap().unwrap();
    let prompt = ids(&expected, "img.input_ids");
    let mut embeddings = vec![];
    for image in images(&expected, &prompt, tower.shape().image_token) {
        let batch = tower.batch(image.grid, &image.patches);
        let mut rec = Recorder::new(Capacity { rows: batch.len(), wanted: batch.wanted().len() }, &[]);
        let result = tower.forward(&mut rec);
        let program = rec.finish(result);
        let options = CpuOptions { activations: Activations::F32, ..CpuOptions::new(2) };
        let mut cpu = Cpu::new(KvLayout::new(DType::F32, &[]), &options).unwrap();
        cpu.load(&program, &mut |_| {}).unwrap();
        let mut outputs = Outputs::default();
        cpu.run(&program, &batch, &mut outputs).unwrap();
        embeddings.extend(outputs.logits);
    }
    close("embeddings", &embeddings, &expected.f32("img.image_embeds"), 1e-4);
}

fn open(case: &str) -> Engine {
    let options = OpenOptions { threads: Some(2), ..OpenOptions::default() }.exact();
    open_engine(&fixture(&format!("oracle/models/{case}")), &options).unwrap()
}

#[test]
fn prompts_with_images() {
    for case in CASES {
        let (engine, expected) = (open(case), expected(case));
        let prompt = ids(&expected, "img.input_ids");
        let images = images(&expected, &prompt, engine.vision().unwrap().image_token);
        let layers = engine.model().layers;
        let taps: Vec<Tap> = (0..layers).map(Tap::Layer).collect();
        let outputs = engine.logits_with_images(&prompt, images.clone(), &taps).unwrap();
        close(&format!("{case} img.logits"), &outputs.logits, &expected.f32("img.logits"), ATOL);
        for (layer, (_, found)) in outputs.taps.iter().enumerate() {
            let key = format!("img.hidden.{layer:02}");
            close(&format!("{case} {key}"), found, &expected.f32(&key), ATOL);
        }
        check_greedy(case, &engine, (&prompt, images), &expected, "img", ATOL);
    }
}

#[test]
fn images_that_do_not_fit_are_refused() {
    let (engine, expected) = (open("qwen3_5"), expected("qwen3_5"));
    let prompt = ids(&expected, "img.input_ids");
    let images = images(&expected, &prompt, engine.vision().unwrap().image_token);
    let refused = |images: Vec<Image>, reason: &str| {
        let error = engine.logits_with_images(&prompt, images, &[]).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    let [first, second] = &images[..] else { panic!("two images") };
    refused(vec![second.clone(), first.clone()], "do not stand for an image");
    refused(vec![Image { start: first.start + 1, ..first.clone() }], "do not stand for an image");
    refused(vec![Image { start: usize::MAX - 5, ..first.clone() }], "do not stand for an image");
    refused(vec![Image { grid: (3, 8), ..first.clone() }], "cannot be");
    refused(vec![Image { grid: (usize::MAX - 1, 2), ..first.clone() }], "cannot be");
    let text = open("qwen3_5-text");
    let error = text.logits_with_images(&prompt, images.clone(), &[]).unwrap_err().to_string();
    assert!(error.contains("sees no images"), "{error}");
}
