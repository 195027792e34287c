/** Preloaded: every WebSocket client that does not dial in a way of its own connects through the noria at NORIA_PROXY. */
const http = require('node:http');
const https = require('node:https');
const { HttpsProxyAgent } = require(process.env.NORIA_AGENT);

for (const module of [http, https]) {
  const request = module.request;
  module.request = (options, ...rest) => {
    const isWebSocket = options.headers?.['Sec-WebSocket-Key'] !== undefined;
    // The names of the functions that ws sets where the test sets none.
    const dialsItself = !['netConnect', 'tlsConnect'].includes(options.createConnection?.name);
    const { agent, lookup, socketPath } = options;
    const isOwn = dialsItself || [agent, lookup, socketPath].some((own) => own !== undefined);
    if (!isWebSocket || isOwn) return request(options, ...rest);
    const { rejectUnauthorized, ca, cert, key, servername } = options;
    const proxyAgent = new HttpsProxyAgent(process.env.NORIA_PROXY, {
      rejectUnauthorized,
      ca,
      cert,
      key,
      servername,
    });
    return request({ ...options, createConnection: undefined, agent: proxyAgent }, ...rest);
  };
}
