'use strict';
// @grpc/grpc-js in the interop tests: `version`, `client` or `server PROTO` (interop/README.md).

const MODES = {
  version: () => {
    const { name, version } = require('@grpc/grpc-js/package.json');
    console.log(JSON.stringify({ library: name, version, runtime: `Node ${process.versions.node}` }));
  },
  client: () => require('./client').main(),
  server: (proto) => require('./server').main(proto),
};

const [mode, ...rest] = process.argv.slice(2);
if (!(mode in MODES) || rest.length !== (mode === 'server' ? 1 : 0)) {
  console.error('expected `version`, `client` or `server PROTO`');
  process.exit(1);
}
MODES[mode](...rest);
