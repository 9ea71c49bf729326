//! Instructions of the hot ops, counted by callgrind, so that a regression shows whatever else the machine does.
//!
//! `cargo bench -p kapitsa-cpu --bench instructions` prints each count beside that of `benches/instructions.txt`; with `-- --write`
//! it writes that file. Needs valgrind, which knows AVX2, so that is the instruction set. A case runs twice, once with twice the
//! calls: the difference is the calls alone.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::process::Command;

use kapitsa_cpu::{Activations, Cpu, CpuOptions, Isa, Tiles};
use kapitsa_ops::kv::{KvLayout, KvShape, PAGE_TOKENS, PageId};
use kapitsa_ops::{
    Backend, Batch, Capacity, DeltaShape, KeyHeads, MambaShape, Outputs, Recorder, SequenceContext, Tensor, Vector,
};
use kapitsa_tensor::{DType, Format, GgufType};
use kapitsa_testkit::random::Rng;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
const CALLS: usize = 4;
const TOKENS: usize = 16;
const CONTEXT: usize = 2048;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [name, calls] = &args[..] {
        return run(name, calls.parse().expect("a number of calls"));
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIP: valgrind is not installed");
        return;
    }
    let recorded = std::fs::read_to_string(RECORD).unwrap_or_default();
    let mut all = String::new();
    for name in cases() {
        let count = (counted(&name, 2 * CALLS) - counted(&name, CALLS)) / CALLS as i64;
        let before = recorded.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse::<i64>().ok());
        let change = before.map_or(String::new(), |before| {
            format!("{:+.2}% of {before}", 100.0 * (count - before) as f64 / before as f64)
        });
        println!("{name:40} {count:12} {change}");
        all += &format!("{name:40} {count:12}\n");
    }
    if args.first().is_some_and(|arg| arg == "--write") {
        std::fs::write(RECORD, all).expect("the record can be written");
    }
}

fn cases() -> Vec<String> {
    let linears =
        formats().into_iter().flat_map(|(name, _)| [1, 8, 64].map(|rows| format!("linear {name} {rows} rows")));
    let attention = [1, 8, 64].map(|rows| format!("attention f16 {rows} rows"));
    let scans = ["gated_delta", "mamba2"].into_iter().flat_map(|op| [1, 8].map(|rows| format!("{op} f32 {rows} rows")));
    let rest = ["full_attention", "rms_norm", "silu_mul"].map(|op| format!("{op} f32 64 rows"));
    linears.chain(attention).chain(scans).chain(rest).collect()
}

fn formats() -> Vec<(&'static str, Format)> {
    vec![
        ("Q4_0", GgufType::Q4_0.into()),
        ("Q4_1", GgufType::Q4_1.into()),
        ("Q5_0", GgufType::Q5_0.into()),
        ("Q8_0", GgufType::Q8_0.into()),
        ("Q4_K", GgufType::Q4K.into()),
        ("Q6_K", GgufType::Q6K.into()),
        ("BF16", Format::Bf16),
    ]
}

/// Instructions of this program with so many calls of a case.
fn counted(name: &str, calls: usize) -> i64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args([name, &calls.to_string()])
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&output.stderr);
    let count = report.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count of {name} in: {report}"))
}

/// Runs a case on one thread.
fn run(name: &str, calls: usize) {
    let words: Vec<&str> = name.split(' ').collect();
    let [op, kind, rows, _] = words[..] else { panic!("{name} is no case") };
    let rows: usize = rows.parse().expect("a number of rows");
    let (inputs, outputs, heads, kv_heads, dim) = (1024, 256, 4, 1, 64);
    let mut rng = Rng(1);
    let mut rec = Recorder::new(Capacity { rows, wanted: 1 }, &[]);
    let mut input = |rec: &mut Recorder, width: usize| -> Tensor {
        let table = rng.weight_in(Format::F32, TOKENS, width);
        rec.embed(&table)
    };
    let vector = |value: f32, len: usize| Vector::new("vector", vec![value; len]);
    let out = match op {
        "linear" => {
            let x = input(&mut rec, inputs);
            let format = formats().into_iter().find(|(name, _)| *name == kind).expect("a format").1;
            rec.linear(x, &rng.weight_in(format, outputs, inputs), None)
        }
        "attention" => {
            let q = input(&mut rec, heads * dim);
            rec.attention(q, 0, (heads, kv_heads), 0.1, None)
        }
        "gated_delta" => {
            let order = KeyHeads::Grouped;
            let shape = DeltaShape { key_heads: 2, value_heads: 4, key_dim: 128, value_dim: 128, order };
            let x = [shape.qkv_width(), shape.value_heads, shape.value_heads].map(|width| input(&mut rec, width));
            rec.gated_delta(x, &vector(-0.1, 4), &vector(0.0, 4), shape, 0)
        }
        "mamba2" => {
            let step_limits = (0.0, f32::INFINITY);
            let shape = MambaShape { heads: 4, head_dim: 64, groups: 2, state_dim: 128, step_limits };
            let x = [shape.xbc_width(), shape.heads].map(|width| input(&mut rec, width));
            rec.mamba2(x, [&vector(-0.1, 4), &vector(0.0, 4), &vector(1.0, 4)], shape, 0)
        }
        "full_attention" => {
            let x = [72 * heads; 3].map(|width| input(&mut rec, width));
            rec.full_attention(x, heads, 0.1)
        }
        "rms_norm" => {
            let x = input(&mut rec, inputs);
            rec.rms_norm(x, &vector(1.0, inputs), 1e-5)
        }
        _ => {
            let (gate, up) = (input(&mut rec, inputs), input(&mut rec, inputs));
            rec.silu_mul(gate, up)
        }
    };
    let out = rec.gather_rows(out);
    let program = rec.finish(out);

    let layout = KvLayout::new(DType::F16, &[KvShape { kv_heads, head_dim: dim, window: None }]);
    let isa = Isa::present().into_iter().find(|isa| isa.name() == "AVX2");
    let options = CpuOptions { threads: 1, isa, activations: Activations::Int8, tiles: Tiles::Form(0) };
    let mut cpu = Cpu::new(layout, &options).expect("a backend");
    cpu.load(&program, &mut |_| {}).expect("memory");
    let pages: Vec<PageId> = (0..CONTEXT.div_ceil(PAGE_TOKENS) as u32).map(PageId).collect();
    cpu.reserve(0, pages.len()).expect("memory");
    cpu.reserve_states(&program.states(), 1).expect("memory");
    let mut batch = Batch::new();
    let sequence =
        batch.add_sequence(SequenceContext { cached: CONTEXT - rows, pages: vec![pages], ..Default::default() });
    let mut last = None;
    for row in 0..rows {
        last = Some(batch.add_row(sequence, (row % TOKENS) as u32, last));
    }
    batch.want(rows - 1);
    let mut results = Outputs::default();
    for _ in 0..calls {
        results.clear();
        cpu.run(&program, &batch, &mut results).expect("memory");
    }
}
