//! The opcodes of the KV protocol that the client sends, with the names of their commands.

macro_rules! opcodes {
    ($($constant:ident = $code:literal, $name:literal;)*) => {
        $(#[allow(dead_code, reason = "some are only named")]
        pub(crate) const $constant: u8 = $code;)*

        /// The name of a command in responses, as decision C5 writes it.
        pub(crate) const fn name(opcode: u8) -> &'static str {
            match opcode {
                $($code => $name,)*
                _ => "",
            }
        }
    };
}

opcodes! {
    GET = 0x00, "get";
    SET = 0x01, "upsert";
    ADD = 0x02, "insert";
    REPLACE = 0x03, "replace";
    DELETE = 0x04, "remove";
    INCREMENT = 0x05, "increment";
    DECREMENT = 0x06, "decrement";
    NOOP = 0x0a, "noop";
    APPEND = 0x0e, "append";
    PREPEND = 0x0f, "prepend";
    TOUCH = 0x1c, "touch";
    GET_AND_TOUCH = 0x1d, "get_and_touch";
    HELLO = 0x1f, "hello";
    SASL_LIST_MECHS = 0x20, "sasl_list_mechs";
    SASL_AUTH = 0x21, "sasl_auth";
    SASL_STEP = 0x22, "sasl_step";
    DCP_OPEN = 0x50, "dcp_open";
    DCP_STREAM_REQUEST = 0x53, "dcp_stream_request";
    DCP_MUTATION = 0x57, "dcp_mutation";
    GET_REPLICA = 0x83, "get_replica";
    SELECT_BUCKET = 0x89, "select_bucket";
    GET_LOCKED = 0x94, "get_and_lock";
    UNLOCK = 0x95, "unlock";
    GET_META = 0xa0, "exists";
    GET_CLUSTER_CONFIG = 0xb5, "cluster_config";
    GET_COLLECTIONS_MANIFEST = 0xba, "get_collection_manifest";
    GET_COLLECTION_ID = 0xbb, "get_collection_id";
    SUBDOC_MULTI_LOOKUP = 0xd0, "lookup_in";
    SUBDOC_MULTI_MUTATION = 0xd1, "mutate_in";
    GET_ERROR_MAP = 0xfe, "get_error_map";
}
