//! Shapes, sizes and views that do not fit are errors that say why; none of them panics.

use kapitsa_tensor::format::{Format, Fp8, Fp8Code, Fp8Scale, GgufType, MlxAffine, TensorScale};
use kapitsa_tensor::{Bytes, DType, Weight};

/// At least one of every variant and parameter.
fn all_formats() -> Vec<Format> {
    let floats = [DType::F32, DType::F16, DType::Bf16];
    let mut formats: Vec<Format> = floats.map(Format::from).to_vec();
    formats.extend(GgufType::ALL.iter().map(|kind| Format::Gguf(*kind)));
    formats.extend([Format::Mxfp4, Format::Mxfp8]);
    for scale in [TensorScale::None, TensorScale::Multiply, TensorScale::Divide, TensorScale::Amax] {
        formats.push(Format::Nvfp4(scale));
    }
    for dtype in floats {
        for bits in [1, 2, 3, 4, 5, 6, 8] {
            formats.extend([32, 64, 128].map(|group| Format::MlxAffine(MlxAffine::new(bits, group, dtype).unwrap())));
        }
        for code in [Fp8Code::E4m3, Fp8Code::E5m2] {
            formats.extend(
                [Fp8Scale::Tensor, Fp8Scale::Channel, Fp8Scale::Block128]
                    .map(|scale| Format::Fp8(Fp8 { code, scale, scale_dtype: dtype })),
            );
        }
    }
    formats
}

fn filled(format: Format, rows: usize, cols: usize, byte: u8) -> Weight {
    let planes = format.planes(rows, cols).unwrap().into_iter().map(|n| Bytes::from(vec![byte; n])).collect();
    Weight::new("w", format, rows, cols, planes).unwrap()
}

#[test]
fn impossible_shapes_are_errors() {
    let huge = [1, 256, 1 << 31, 1 << 32, usize::MAX / 256 * 256, usize::MAX];
    for format in all_formats() {
        let block = format.block_len();
        for (rows, cols) in [(0, 0), (0, block), (1, 0), (usize::MAX, 0)] {
            let reason = format.planes(rows, cols).unwrap_err();
            assert!(reason.contains("empty"), "{format}: {reason}");
        }
        for cols in [1, block - 1, block + 1, 3 * block + block / 2] {
            let planes = format.planes(2, cols);
            assert_eq!(planes.is_ok(), cols > 0 && cols % block == 0, "{format} {cols}: {planes:?}");
        }
        for rows in huge {
            for cols in huge {
                let planes = format.planes(rows, cols);
                assert!(planes.is_err() || rows.checked_mul(cols).is_some(), "{format} {rows} {cols}");
                assert!(Weight::new("w", format, rows, cols, vec![]).is_err());
            }
        }
    }
}

#[test]
fn planes_of_other_sizes_are_errors() {
    for format in all_formats() {
        let cols = 2 * format.block_len();
        let sizes = format.planes(3, cols).unwrap();
        let planes = |sizes: &[usize]| sizes.iter().map(|n| Bytes::from(vec![0; *n])).collect::<Vec<_>>();
        assert!(Weight::new("w", format, 3, cols, planes(&sizes)).is_ok());
        assert!(Weight::new("w", format, 3, cols, planes(&sizes[1..])).is_err());
        assert!(Weight::new("w", format, 3, cols, planes(&[&sizes[..], &[1]].concat())).is_err());
        for i in 0..sizes.len() {
            for size in [0, sizes[i] - 1, sizes[i] + 1, 2 * sizes[i]] {
                let mut sizes = sizes.clone();
                sizes[i] = size;
                let error = Weight::new("blk.0.w", format, 3, cols, planes(&sizes)).unwrap_err().to_string();
                assert!(error.starts_with("weight `blk.0.w`: ") && error.contains("expected"), "{error}");
            }
        }
    }
}

#[test]
fn any_bytes_decode_without_a_panic() {
    for format in all_formats() {
        for cols in [format.block_len(), 3 * format.block_len()] {
            let mut out = vec![0.0; cols];
            for byte in 0..=255 {
                let weight = filled(format, 2, cols, byte);
                weight.dequantize(0, &mut out);
                weight.dequantize(1, &mut out);
            }
        }
    }
}

#[test]
fn views_outside_the_weight_are_errors() {
    for format in all_formats() {
        let weight = filled(format, 4, format.block_len(), 1);
        for (first, rows) in [(0, 0), (4, 0), (4, 1), (0, 5), (3, 2), (usize::MAX, 1), (1, usize::MAX)] {
            assert!(weight.view("v", first, rows).is_err(), "{format} {first} {rows}");
        }
    }
}

#[test]
fn views_cannot_cut_a_block_of_scales() {
    let format = Format::Fp8(Fp8 { code: Fp8Code::E4m3, scale: Fp8Scale::Block128, scale_dtype: DType::F32 });
    let weight = filled(format, 300, 130, 0x38);
    assert_eq!(format.planes(300, 130).unwrap(), [300 * 130, 3 * 2 * 4]);
    let view = weight.view("v", 128, 100).unwrap();
    assert_eq!(view.planes().iter().map(Bytes::len).collect::<Vec<_>>(), [100 * 130, 2 * 4]);
    assert_eq!(weight.view("v", 256, 44).unwrap().bytes(), 44 * 130 + 2 * 4);
    let error = weight.view("v", 64, 64).unwrap_err().to_string();
    assert!(error.contains("multiple of 128"), "{error}");
}

#[test]
fn mlx_parameters_are_checked() {
    for (bits, group) in [(0, 64), (7, 64), (9, 64), (u64::MAX, 64), (4, 0), (4, 16), (4, 256), (4, 288), (260, 64)] {
        assert!(MlxAffine::new(bits, group, DType::Bf16).is_err(), "{bits} {group}");
    }
}

#[test]
fn gguf_ids() {
    for kind in GgufType::ALL {
        if *kind != GgufType::Q2_0Group128 {
            assert_eq!(Format::from_gguf_id(kind.id()), Some(Format::Gguf(*kind)));
        }
    }
    assert_eq!([0, 1, 30].map(Format::from_gguf_id), [Format::F32, Format::F16, Format::Bf16].map(Some));
    // Integers, F64, the activation types Q8_1 and Q8_K, removed types, and numbers nobody has given out.
    for id in [4, 5, 9, 15, 24, 25, 26, 27, 28, 31, 33, 36, 38, 43, 1000, u32::MAX] {
        assert_eq!(Format::from_gguf_id(id), None, "{id}");
    }
}

#[test]
fn the_two_types_of_id_42_are_told_apart_by_size() {
    let of_size = GgufType::q2_0_of_size;
    for padding in [0, 14, 31] {
        assert_eq!(of_size(4096, 64 * 18 + padding, 32), Some(GgufType::Q2_0));
        assert_eq!(of_size(4096, 32 * 34 + padding, 32), Some(GgufType::Q2_0Group128));
    }
    assert_eq!(of_size(64, 18, 1), Some(GgufType::Q2_0));
    assert_eq!(of_size(128, 34, 0), Some(GgufType::Q2_0Group128));
    for (weights, bytes) in [(4096, 0), (4096, 2000), (100, 34), (u64::MAX, u64::MAX), (u64::MAX / 64 * 64, 18)] {
        assert_eq!(of_size(weights, bytes, 32), None, "{weights} {bytes}");
    }
}
