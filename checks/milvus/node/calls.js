// Makes calls with the Milvus Node SDK: one JSON object per line in, one per line out.
//
//   node calls.js ADDRESS OPTIONS
//
// OPTIONS are those of MilvusClient, as JSON. A line is {"call": "insert", "collection": "c"}; the
// answer has "ms", and "error" (its text) or "value".
'use strict';

const readline = require('node:readline');
const { MilvusClient, DataType } = require('@zilliz/milvus2-sdk-node');

const DIMENSION = 4;
const vector = () => Array(DIMENSION).fill(1);

const calls = {
  create: (client, name) =>
    client.createCollection({
      collection_name: name,
      fields: [
        { name: 'id', data_type: DataType.Int64, is_primary_key: true, autoID: true },
        { name: 'vector', data_type: DataType.FloatVector, dim: DIMENSION },
      ],
    }),
  insert: (client, name) =>
    client.insert({ collection_name: name, data: [{ vector: vector() }] }),
  search: (client, name) =>
    client.search({ collection_name: name, data: [vector()], limit: 10 }),
  query: (client, name) =>
    client.query({ collection_name: name, output_fields: ['count(*)'] }),
  drop: (client, name) => client.dropCollection({ collection_name: name }),
  version: (client) => client.getVersion(),
};

async function main() {
  const [address, options] = process.argv.slice(2);
  const client = new MilvusClient({ address, ...JSON.parse(options) });
  await client.connectPromise;
  console.log(JSON.stringify({ ready: true }));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { call, collection } = JSON.parse(line);
    const start = Date.now();
    let answer;
    try {
      answer = { value: await calls[call](client, collection) };
    } catch (error) {
      answer = { error: error.message };
    }
    console.log(JSON.stringify({ ...answer, ms: Date.now() - start }));
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
