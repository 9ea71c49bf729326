//! How weights are stored: one type a format, each with its block layout and an exact scalar dequantiser.
