//! The smallest file that is a model to whoever reads headers only.

/// A GGUF file without layers, one tensor of eight floats, with these numbers among its metadata besides.
pub fn tiny_model(numbers: &[(&str, u16)]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let entry = |key: &str, kind: u32, value: &[u8]| [&text(key), &kind.to_le_bytes()[..], value].concat();
    let mut bytes = [
        b"GGUF\x03\0\0\0".to_vec(),
        1_u64.to_le_bytes().to_vec(),
        (4 + numbers.len() as u64).to_le_bytes().to_vec(),
        entry("general.architecture", 8, &text("x")),
        entry("x.block_count", 4, &0_u32.to_le_bytes()),
        entry("x.context_length", 4, &8_u32.to_le_bytes()),
        entry("x.embedding_length", 4, &8_u32.to_le_bytes()),
        numbers.iter().flat_map(|(key, number)| entry(key, 2, &number.to_le_bytes())).collect(),
        text("w"),
        1_u32.to_le_bytes().to_vec(),
        8_u64.to_le_bytes().to_vec(),
        vec![0; 12],
    ]
    .concat();
    bytes.resize(bytes.len().next_multiple_of(32) + 32, 0);
    bytes
}
