//! A collection with generated keys, and the calls of a generated client. Each insert that the
//! server executes adds a row.

use milvus::proto::common::{
    DslType, KeyValuePair, PlaceholderGroup, PlaceholderValue, Status as InnerStatus,
};
use milvus::proto::milvus::milvus_service_client::MilvusServiceClient;
use milvus::proto::milvus::search_request::SearchInput;
use milvus::proto::milvus::{
    CreateCollectionRequest, CreateIndexRequest, DropCollectionRequest, HasCollectionRequest,
    InsertRequest, LoadCollectionRequest, MutationResult, QueryRequest, QueryResults,
    SearchRequest, SearchResults,
};
use milvus::proto::schema::{
    CollectionSchema, DataType, FieldData, FieldSchema, FloatArray, VectorField, field_data,
    scalar_field, vector_field,
};
use prost::Message;
use redial_milvus::layer::{InterceptorService, Tonic013};
use redial_milvus::{Interceptor, Options};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceBuilder;

const DIMENSION: usize = 4;
/// `PlaceholderType::FloatVector`.
const FLOAT_VECTOR: i32 = 101;

pub(crate) type Client = MilvusServiceClient<InterceptorService<Channel, Tonic013>>;

pub(crate) fn channel(url: &str) -> Channel {
    Endpoint::from_shared(url.to_owned()).unwrap().connect_lazy()
}

/// The SDK's generated client, with the layer around its channel.
pub(crate) fn client(url: &str, interceptor: Interceptor) -> Client {
    let layer = interceptor.layer_0_13();
    MilvusServiceClient::new(ServiceBuilder::new().layer(layer).service(channel(url)))
}

/// A client for setup and for counting, straight to the server and without retries.
pub(crate) fn direct(url: &str) -> Client {
    client(url, Options::DEFAULT.max_retries(0).interceptor().unwrap())
}

fn pair(key: &str, value: &str) -> KeyValuePair {
    KeyValuePair { key: key.to_owned(), value: value.to_owned() }
}

/// A collection of one test.
pub(crate) struct Collection {
    pub(crate) name: String,
}

impl Collection {
    pub(crate) fn new(name: &str) -> Collection {
        Collection { name: name.to_owned() }
    }

    fn create_request(&self) -> CreateCollectionRequest {
        let key = FieldSchema {
            field_id: 100,
            name: "id".to_owned(),
            is_primary_key: true,
            data_type: DataType::Int64.into(),
            auto_id: true,
            ..FieldSchema::default()
        };
        let vector = FieldSchema {
            field_id: 101,
            name: "vector".to_owned(),
            data_type: DataType::FloatVector.into(),
            type_params: vec![pair("dim", &DIMENSION.to_string())],
            ..FieldSchema::default()
        };
        let schema = CollectionSchema {
            name: self.name.clone(),
            fields: vec![key, vector],
            ..CollectionSchema::default()
        };
        CreateCollectionRequest {
            collection_name: self.name.clone(),
            schema: schema.encode_to_vec(),
            ..CreateCollectionRequest::default()
        }
    }

    pub(crate) async fn create(&self, client: &mut Client) -> Result<InnerStatus, Status> {
        client.create_collection(self.create_request()).await.map(tonic::Response::into_inner)
    }

    /// Creates the collection, its index, and loads it.
    pub(crate) async fn set_up(&self, client: &mut Client) {
        ok(&self.create(client).await.unwrap());
        let params = [("index_type", "FLAT"), ("metric_type", "L2"), ("params", "{}")];
        let index = CreateIndexRequest {
            collection_name: self.name.clone(),
            field_name: "vector".to_owned(),
            extra_params: params.map(|(key, value)| pair(key, value)).to_vec(),
            index_name: "vector".to_owned(),
            ..CreateIndexRequest::default()
        };
        ok(client.create_index(index).await.unwrap().get_ref());
        let load = LoadCollectionRequest {
            collection_name: self.name.clone(),
            ..LoadCollectionRequest::default()
        };
        ok(client.load_collection(load).await.unwrap().get_ref());
    }

    /// Inserts one row.
    pub(crate) async fn insert(&self, client: &mut Client) -> Result<MutationResult, Status> {
        let data = FloatArray { data: vec![1.0; DIMENSION] };
        let vectors = VectorField {
            dim: DIMENSION as i64,
            data: Some(vector_field::Data::FloatVector(data)),
            ..VectorField::default()
        };
        let field = FieldData {
            r#type: DataType::FloatVector.into(),
            field_name: "vector".to_owned(),
            field: Some(field_data::Field::Vectors(vectors)),
            ..FieldData::default()
        };
        let request = InsertRequest {
            collection_name: self.name.clone(),
            fields_data: vec![field],
            num_rows: 1,
            ..InsertRequest::default()
        };
        client.insert(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn search(&self, client: &mut Client) -> Result<SearchResults, Status> {
        let vector = [1.0_f32; DIMENSION].iter().flat_map(|it| it.to_le_bytes()).collect();
        let placeholder = PlaceholderValue {
            tag: "$0".to_owned(),
            r#type: FLOAT_VECTOR,
            values: vec![vector],
            ..PlaceholderValue::default()
        };
        let group = PlaceholderGroup { placeholders: vec![placeholder] };
        let params = [
            ("anns_field", "vector"),
            ("topk", "10"),
            ("metric_type", "L2"),
            ("params", "{}"),
            ("round_decimal", "-1"),
        ];
        let request = SearchRequest {
            collection_name: self.name.clone(),
            dsl_type: DslType::BoolExprV1.into(),
            search_input: Some(SearchInput::PlaceholderGroup(group.encode_to_vec())),
            search_params: params.map(|(key, value)| pair(key, value)).to_vec(),
            nq: 1,
            ..SearchRequest::default()
        };
        client.search(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn query(&self, client: &mut Client) -> Result<QueryResults, Status> {
        let request = QueryRequest {
            collection_name: self.name.clone(),
            output_fields: vec!["count(*)".to_owned()],
            ..QueryRequest::default()
        };
        client.query(request).await.map(tonic::Response::into_inner)
    }

    /// The number of rows that the server has.
    pub(crate) async fn rows(&self, client: &mut Client) -> i64 {
        count(&self.query(client).await.unwrap())
    }

    pub(crate) async fn drop(&self, client: &mut Client) -> Result<InnerStatus, Status> {
        let request = DropCollectionRequest {
            collection_name: self.name.clone(),
            ..DropCollectionRequest::default()
        };
        client.drop_collection(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn exists(&self, client: &mut Client) -> bool {
        let request = HasCollectionRequest {
            collection_name: self.name.clone(),
            ..HasCollectionRequest::default()
        };
        client.has_collection(request).await.unwrap().into_inner().value
    }
}

/// Milvus reports its errors inside the message.
pub(crate) fn ok(status: &InnerStatus) {
    assert_eq!(status.code, 0, "{status:?}");
}

/// The value of `count(*)`.
pub(crate) fn count(results: &QueryResults) -> i64 {
    ok(results.status.as_ref().unwrap());
    let Some(field_data::Field::Scalars(scalars)) = &results.fields_data[0].field else {
        panic!("no count in {results:?}");
    };
    let Some(scalar_field::Data::LongData(numbers)) = &scalars.data else {
        panic!("no number in {results:?}");
    };
    numbers.data[0]
}
