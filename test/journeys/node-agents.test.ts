/**
 * The agents of Node's HTTP clients, through a whole noria with HTTP and SOCKS5 members, to targets over HTTP and TLS.
 * Each agent is used as in its own tests. The tests check the exits that the target saw.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { HttpProxyAgent } from 'http-proxy-agent';
import { HttpsProxyAgent } from 'https-proxy-agent';
import { Server as ProxyChainServer } from 'proxy-chain';
import { SocksProxyAgent } from 'socks-proxy-agent';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES, type Scheme } from '../support/client-stage.ts';
import { TARGET_CERTIFICATE } from '../support/exit-origin.ts';

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());
afterEach(() => expect(stage.strangers(), 'connections past noria').toEqual([]));

const REQUESTS = 4;
const EXIT = /^127\.\d+\.\d+\.\d+$/;
/** A dead target: nothing listens on its port. */
const DEAD = 'target.example:1';

interface AgentCase {
  readonly name: string;
  readonly schemes: readonly Scheme[];
  /** `login`: `USER:PASSWORD@` or nothing. */
  readonly open: (login: string, proxy: string) => Agent;
}

const ca = readFileSync(TARGET_CERTIFICATE);
const CASES: readonly AgentCase[] = [
  {
    name: 'http-proxy-agent',
    schemes: ['http'],
    open: (login, proxy) => new HttpProxyAgent(`http://${login}${proxy}`),
  },
  {
    name: 'http-proxy-agent with keepAlive',
    schemes: ['http'],
    open: (login, proxy) => new HttpProxyAgent(`http://${login}${proxy}`, { keepAlive: true }),
  },
  {
    name: 'https-proxy-agent',
    schemes: SCHEMES,
    open: (login, proxy) => new HttpsProxyAgent(`http://${login}${proxy}`),
  },
  ...['socks5h', 'socks4a'].map(
    (protocol): AgentCase => ({
      name: `socks-proxy-agent with ${protocol}`,
      schemes: SCHEMES,
      open: (login, proxy) => new SocksProxyAgent(`${protocol}://${login}${proxy}`),
    }),
  ),
];

async function get(url: string, agent: Agent): Promise<{ readonly status: number; readonly body: string }> {
  const send = url.startsWith('https:') ? httpsRequest : httpRequest;
  const request = send(url, { agent, ca });
  request.end();
  const [response]: IncomingMessage[] = await once(request, 'response');
  if (response === undefined) throw new TypeError('no response');
  return { status: response.statusCode ?? 0, body: await text(response) };
}

async function exitsThrough(agent: Agent, scheme: Scheme): Promise<string[]> {
  const exits: string[] = [];
  for (let nth = 0; nth < REQUESTS; nth += 1) {
    const { status, body } = await get(`${stage.target(scheme)}/ip`, agent);
    expect(status).toBe(200);
    expect(body.trim()).toMatch(EXIT);
    exits.push(body.trim());
  }
  return exits;
}

function opened(agent: Agent): Agent {
  onTestFinished(() => agent.destroy());
  return agent;
}

describe.each(CASES)('node agents: $name', ({ name, schemes, open }) => {
  test.each(schemes)('rotates, for an %s target', async (scheme) => {
    const exits = await exitsThrough(opened(open('', stage.open)), scheme);
    expect(new Set(exits).size).toBeGreaterThan(1);
  });

  test('reports a dead target', async () => {
    const answer = get(`http://${DEAD}/`, opened(open('', stage.open)));
    if (name.startsWith('socks')) await expect(answer).rejects.toThrow(/refused|unreachable|rejected/i);
    else await expect(answer).resolves.toMatchObject({ status: 502 });
  });

  if (name.endsWith('socks4a')) return; // SOCKS4 has no password
  test('keeps its member in a session, with a password', async () => {
    const scheme = schemes.at(-1) ?? 'http';
    const login = `me-session-${name.replaceAll(/\W/g, '')}:x@`;
    const exits = await exitsThrough(opened(open(login, stage.withUsers)), scheme);
    expect(new Set(exits).size).toBe(1);
  });
});

describe.each(['http', 'socks5h'])('node agents: proxy-chain with noria as its %s upstream', (protocol) => {
  test.each(SCHEMES)('rotates, for an %s target', async (scheme) => {
    const chain = new ProxyChainServer({
      host: '127.0.0.1',
      port: 0,
      prepareRequestFunction: () => ({ upstreamProxyUrl: `${protocol}://me:x@${stage.withUsers}` }),
    });
    await chain.listen();
    onTestFinished(() => chain.close(true));
    const proxy = `http://127.0.0.1:${chain.port}`;
    const agent = scheme === 'http' ? new HttpProxyAgent(proxy) : new HttpsProxyAgent(proxy);
    const exits = await exitsThrough(opened(agent), scheme);
    expect(new Set(exits).size).toBeGreaterThan(1);
  });
});
