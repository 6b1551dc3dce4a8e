//! The types in which tensors are stored.

/// A storage type of ggml, by its number in the file (`enum ggml_type` in ggml's `ggml.h`).
///
/// ```
/// use gglib_core::model::gguf::GgmlType;
///
/// assert_eq!(GgmlType::named("q8_0").unwrap().bytes(4096), Some(4096 / 32 * 34));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgmlType(pub u32);

impl GgmlType {
    /// 16-bit floats, in which an engine keeps its KV cache unless told otherwise.
    pub const F16: Self = Self(1);

    /// The type that `llama-server`'s `--cache-type-k` calls `name`.
    pub fn named(name: &str) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == name).map(|row| Self(row.0))
    }

    /// Its name in llama.cpp; `None` for a type that is newer than this table.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// Bytes that `elements` take, whole blocks; `None` for an unknown type. Saturates.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let &(_, _, block, bytes) = self.row()?;
        Some(elements.div_ceil(block).saturating_mul(bytes))
    }

    /// Whether some CPU backend of llama.cpp copies matrices of this type into a layout that its instructions
    /// prefer (its `repack` and `amx` buffers). Which ones it does is up to the machine.
    pub fn is_repacked(self) -> bool {
        matches!(self.0, 2 | 3 | 8 | 10 | 12 | 13 | 14 | 20 | 23 | 39)
    }

    fn row(self) -> Option<&'static (u32, &'static str, u64, u64)> {
        TYPES.iter().find(|row| row.0 == self.0)
    }
}

/// Number, name, elements of a block and its bytes: sizes of the `block_*` structs in ggml's `ggml-common.h`.
#[rustfmt::skip]
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "f32", 1, 4), (1, "f16", 1, 2), (30, "bf16", 1, 2), (28, "f64", 1, 8),
    (24, "i8", 1, 1), (25, "i16", 1, 2), (26, "i32", 1, 4), (27, "i64", 1, 8),
    (2, "q4_0", 32, 18), (3, "q4_1", 32, 20), (6, "q5_0", 32, 22), (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34), (9, "q8_1", 32, 36),
    (10, "q2_k", 256, 84), (11, "q3_k", 256, 110), (12, "q4_k", 256, 144), (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210), (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66), (17, "iq2_xs", 256, 74), (18, "iq3_xxs", 256, 98), (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18), (21, "iq3_s", 256, 110), (22, "iq2_s", 256, 82), (23, "iq4_xs", 256, 136),
    (29, "iq1_m", 256, 56), (34, "tq1_0", 256, 54), (35, "tq2_0", 256, 66), (39, "mxfp4", 32, 17),
];
