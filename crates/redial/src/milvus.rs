//! Milvus.
