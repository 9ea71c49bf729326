//! Every dequantiser against the vectors of `tests/fixtures/oracle/quant`.
//!
//! Each test takes all keys of its file: a vector that no format claims fails the test.

use std::collections::BTreeMap;

use kapitsa_tensor::format::{Format, Fp8, Fp8Code, Fp8Scale, GgufType, MlxAffine, TensorScale};
use kapitsa_tensor::{Bytes, DType, Weight};
use safetensors::{Dtype, SafeTensors};

/// A stored tensor.
#[derive(Clone)]
struct Vector {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Bytes,
}

impl Vector {
    fn floats(&self) -> Vec<f32> {
        let dtype = match self.dtype {
            Dtype::F32 => DType::F32,
            Dtype::BF16 => DType::Bf16,
            other => panic!("not a float vector: {other:?}"),
        };
        (0..self.bytes.len() / dtype.bytes()).map(|i| dtype.read(&self.bytes, i)).collect()
    }
}

/// The vectors of a file that no check has taken yet.
struct Vectors(BTreeMap<String, Vector>);

impl Vectors {
    fn open(file: &str) -> Self {
        let path = format!("{}/../../tests/fixtures/oracle/quant/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let vector = |view: safetensors::tensor::TensorView| Vector {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: Bytes::copy_from_slice(view.data()),
        };
        Vectors(tensors.tensors().into_iter().map(|(key, view)| (key, vector(view))).collect())
    }

    fn take(&mut self, key: &str) -> Vector {
        self.0.remove(key).unwrap_or_else(|| panic!("no vector {key}, or taken twice"))
    }

    fn all_taken(self) {
        assert!(self.0.is_empty(), "vectors without a format: {:?}", self.0.keys());
    }
}

/// Dequantises all rows.
fn dequantize(weight: &Weight) -> Vec<f32> {
    let mut out = vec![f32::NAN; weight.rows() * weight.cols()];
    for (row, out) in out.chunks_exact_mut(weight.cols()).enumerate() {
        weight.dequantize(row, out);
    }
    out
}

#[track_caller]
fn assert_same_bits(key: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{key}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
            "{key}[{i}] is {found:?}, expected {expected:?}"
        );
    }
}

#[track_caller]
fn assert_close(key: &str, found: &[f32], expected: &[f32], relative: f32) {
    assert_eq!(found.len(), expected.len(), "{key}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= relative * expected.abs(),
            "{key}[{i}] is {found:?}, expected {expected:?}"
        );
    }
}

/// `x @ weight^T` with sums in f64, against the stored product.
#[track_caller]
fn assert_product(key: &str, weight: &Weight, x: &[f32], expected: &Vector) {
    let (values, cols) = (dequantize(weight), weight.cols());
    let expected = expected.floats();
    assert_eq!(expected.len(), x.len() / cols * weight.rows(), "{key}");
    for (x, expected) in x.chunks_exact(cols).zip(expected.chunks_exact(weight.rows())) {
        for (w, expected) in values.chunks_exact(cols).zip(expected) {
            let sum: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            assert!((sum - f64::from(*expected)).abs() <= 1e-5, "{key}: {sum} expected {expected}");
        }
    }
}

/// Each row must be the same when it is cut out of the weight first.
#[track_caller]
fn assert_views(weight: &Weight, step: usize) {
    let whole = dequantize(weight);
    for first in (0..weight.rows()).step_by(step) {
        for rows in [1, (weight.rows() - first).div_ceil(2), weight.rows() - first] {
            let view = weight.view("view", first, rows).unwrap();
            assert_eq!((view.rows(), view.cols(), view.format()), (rows, weight.cols(), weight.format()));
            let expected = &whole[first * weight.cols()..][..rows * weight.cols()];
            assert_same_bits(&format!("{view:?} from {first}"), &dequantize(&view), expected);
        }
    }
}

#[test]
fn gguf_blocks() {
    let mut vectors = Vectors::open("gguf");
    let mut formats: BTreeMap<String, Format> =
        GgufType::ALL.iter().map(|kind| (kind.name().to_owned(), Format::Gguf(*kind))).collect();
    formats.remove("Q2_0 (group 128)");
    formats.remove("Q2_0");
    formats.insert("Q2_0_64".to_owned(), GgufType::Q2_0.into());
    formats.insert("Q2_0_128".to_owned(), GgufType::Q2_0Group128.into());
    formats.insert("BF16".to_owned(), Format::Bf16);

    vectors.take("src");
    vectors.take("BF16.src");
    for (name, format) in formats {
        let mut pairs = vec![("blocks", "expected")];
        if vectors.0.contains_key(&format!("{name}.src_blocks")) {
            pairs.push(("src_blocks", "src_expected"));
        }
        for (blocks, expected) in pairs {
            let key = format!("{name}.{expected}");
            let (blocks, expected) = (vectors.take(&format!("{name}.{blocks}")), vectors.take(&key));
            let (count, values) = (expected.shape.iter().product::<usize>(), expected.floats());
            // As stored, as one long row and, the other extreme, as one block a row.
            for cols in [*expected.shape.last().unwrap(), count, format.block_len()] {
                let weight = Weight::new("w", format, count / cols, cols, vec![blocks.bytes.clone()]).unwrap();
                assert_same_bits(&key, &dequantize(&weight), &values);
            }
            let weight = Weight::new("w", format, 4, count / 4, vec![blocks.bytes.clone()]).unwrap();
            assert_views(&weight, 1);
        }
    }
    vectors.all_taken();
}

#[test]
fn mlx_affine() {
    let mut vectors = Vectors::open("mlx_affine");
    let x = vectors.take("x").floats();
    vectors.take("w");
    for bits in [1, 2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            let key = format!("b{bits}.g{group}");
            let [words, scales, biases, codes, values, half_values, product] =
                ["weight", "scales", "biases", "codes", "dequant", "dequant_bf16", "matmul"]
                    .map(|part| vectors.take(&format!("{key}.{part}")));
            let [rows, cols] = codes.shape[..] else { panic!("{key}") };
            let of = |scale_dtype, scales: Bytes, biases: Bytes| {
                let format = Format::MlxAffine(MlxAffine::new(bits, group, scale_dtype).unwrap());
                Weight::new("w", format, rows, cols, vec![words.bytes.clone(), scales, biases]).unwrap()
            };
            let weight = of(DType::Bf16, scales.bytes.clone(), biases.bytes.clone());
            assert_same_bits(&key, &dequantize(&weight), &values.floats());
            assert_product(&key, &weight, &x, &product);
            assert_views(&weight, 1);
            // MLX in bfloat16 rounds the product and then the sum, each by at most 2^-9 of its size; the product
            // is no larger than sum and bias together.
            let bias = biases.floats().iter().fold(0f32, |max, bias| max.max(bias.abs()));
            for (half, found) in half_values.floats().iter().zip(dequantize(&weight)) {
                assert!((half - found).abs() <= (found.abs() + bias) / 256.0, "{key}: {found}, in bfloat16 {half}");
            }

            // The same scales in the other two types; these BF16 values fit F32 but not always F16.
            let wide = |v: &Vector| v.floats().into_iter().flat_map(f32::to_le_bytes).collect::<Bytes>();
            assert_same_bits(&key, &dequantize(&of(DType::F32, wide(&scales), wide(&biases))), &values.floats());
            // With scale 1 and bias 0 the values are the codes.
            let count = rows * cols / group as usize;
            let constant = |bits: u16| bits.to_le_bytes().repeat(count).into();
            let bare = of(DType::F16, constant(0x3c00), constant(0));
            let codes: Vec<f32> = codes.bytes.iter().map(|code| f32::from(*code)).collect();
            assert_same_bits(&key, &dequantize(&bare), &codes);
        }
    }
    vectors.all_taken();
}

#[test]
fn mlx_float_modes() {
    let mut vectors = Vectors::open("mlx_fp");
    let x = vectors.take("x").floats();
    vectors.take("w");
    for (key, format) in
        [("mxfp4", Format::Mxfp4), ("mxfp8", Format::Mxfp8), ("nvfp4", Format::Nvfp4(TensorScale::None))]
    {
        let [words, scales, values, product] =
            ["weight", "scales", "dequant", "matmul"].map(|part| vectors.take(&format!("{key}.{part}")));
        let [rows, cols] = values.shape[..] else { panic!("{key}") };
        let weight = Weight::new("w", format, rows, cols, vec![words.bytes, scales.bytes]).unwrap();
        assert_same_bits(key, &dequantize(&weight), &values.floats());
        assert_product(key, &weight, &x, &product);
        assert_views(&weight, 1);
    }

    let key = "nvfp4_global";
    let [words, scales, global, values, half_values] =
        ["weight", "scales", "global_scale", "dequant", "dequant_bf16_from_mlx"]
            .map(|part| vectors.take(&format!("{key}.{part}")));
    let [rows, cols] = values.shape[..] else { panic!("{key}") };
    let planes = vec![words.bytes, scales.bytes, global.bytes];
    let weight = Weight::new("w", Format::Nvfp4(TensorScale::Amax), rows, cols, planes).unwrap();
    let found = dequantize(&weight);
    // The vector multiplies by the scale of the tensor last, this engine (and MLX) first.
    assert_close(key, &found, &values.floats(), 1e-6);
    assert_close(key, &found, &half_values.floats(), 1.0 / 256.0);
    assert_views(&weight, 1);
    vectors.all_taken();
}

#[test]
fn nvfp4_checkpoints() {
    let mut vectors = Vectors::open("nvfp4");
    let (x, product) = (vectors.take("x").floats(), vectors.take("matmul"));
    let (values, codes) = (vectors.take("dequant"), vectors.take("codes"));
    for key in ["w", "modelopt.input_scale", "compressed.input_global_scale"] {
        vectors.take(key);
    }
    let [rows, cols] = values.shape[..] else { panic!() };
    let weight = |format, planes| Weight::new("w", format, rows, cols, planes).unwrap();

    let planes =
        ["weight", "weight_scale", "weight_scale_2"].map(|part| vectors.take(&format!("modelopt.{part}")).bytes);
    let modelopt = weight(Format::Nvfp4(TensorScale::Multiply), planes.to_vec());
    assert_same_bits("modelopt", &dequantize(&modelopt), &values.floats());
    assert_product("modelopt", &modelopt, &x, &product);
    assert_views(&modelopt, 1);

    let planes = ["weight_packed", "weight_scale", "weight_global_scale"]
        .map(|part| vectors.take(&format!("compressed.{part}")).bytes);
    let compressed = weight(Format::Nvfp4(TensorScale::Divide), planes.to_vec());
    assert_close("compressed", &dequantize(&compressed), &values.floats(), 1e-6);
    assert_product("compressed", &compressed, &x, &product);
    assert_views(&compressed, 1);

    // With all scales 1 (E4M3 0x38) the values are those of the codes.
    let ones = Bytes::from(vec![0x38; rows * cols / 16]);
    let bare = weight(Format::Nvfp4(TensorScale::None), vec![planes[0].clone(), ones]);
    let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    let expected: Vec<f32> = codes.bytes.iter().map(|code| e2m1[usize::from(*code)]).collect();
    assert_same_bits("codes", &dequantize(&bare), &expected);
    vectors.all_taken();
}

#[test]
fn fp8_checkpoints() {
    let mut vectors = Vectors::open("fp8");
    let x = vectors.take("x").floats();
    vectors.take("tensor.input_scale");
    for (key, scale, scale_key, step) in [
        ("tensor", Fp8Scale::Tensor, "weight_scale", 1),
        ("channel", Fp8Scale::Channel, "weight_scale", 1),
        ("block128", Fp8Scale::Block128, "weight_scale_inv", 128),
    ] {
        let [codes, scales, values, product] =
            ["weight", scale_key, "dequant", "matmul"].map(|part| vectors.take(&format!("{key}.{part}")));
        let [rows, cols] = values.shape[..] else { panic!("{key}") };
        let format = Format::Fp8(Fp8 { code: Fp8Code::E4m3, scale, scale_dtype: DType::F32 });
        let weight = Weight::new("w", format, rows, cols, vec![codes.bytes.clone(), scales.bytes.clone()]).unwrap();
        assert_same_bits(key, &dequantize(&weight), &values.floats());
        assert_product(key, &weight, &x, &product);
        assert_views(&weight, step);

        // Scales in BF16, as some checkpoints have them: the upper halves of the F32 ones.
        let half: Bytes = scales.bytes.chunks_exact(4).flat_map(|scale| [scale[2], scale[3]]).collect();
        let cut: Bytes = scales.bytes.chunks_exact(4).flat_map(|scale| [0, 0, scale[2], scale[3]]).collect();
        let format = Format::Fp8(Fp8 { code: Fp8Code::E4m3, scale, scale_dtype: DType::Bf16 });
        let short = Weight::new("w", format, rows, cols, vec![codes.bytes.clone(), half]).unwrap();
        let long = Weight::new("w", *weight.format(), rows, cols, vec![codes.bytes, cut]).unwrap();
        assert_same_bits(key, &dequantize(&short), &dequantize(&long));
    }

    for (key, code) in [("e4m3_table", Fp8Code::E4m3), ("e5m2_table", Fp8Code::E5m2)] {
        let table = vectors.take(key).floats();
        let format = Format::Fp8(Fp8 { code, scale: Fp8Scale::Tensor, scale_dtype: DType::F32 });
        let planes = vec![(0..=255).collect(), Bytes::copy_from_slice(&1f32.to_le_bytes())];
        let weight = Weight::new("table", format, 1, 256, planes).unwrap();
        assert_same_bits(key, &dequantize(&weight), &table);
    }
    vectors.all_taken();
}
