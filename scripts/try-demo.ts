/**
 * `npm run try-demo`: runs `npm start` as a newcomer would, sends one request through the demo, then through a second demo of three
 * norias beside it, and ends both with SIGTERM. Fails if a process or a port outlives its `npm start`. Needs only Node and npm.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { get } from 'node:http';
import { connect } from 'node:net';

const LIMIT_MS = 120_000;

const started: ChildProcess[] = [];
process.on('exit', () => {
  for (const npm of started) npm.kill();
});

const first = await startDemo();
const second = await startDemo('--', '--replicas', '3', '--members', '6');
for (const demo of [first, second])
  for (const proxy of demo.proxies)
    console.log(`${proxy} -> ${demo.target}: ${await exitThrough(proxy, demo.target)}`);
for (const demo of [second, first]) await stop(demo);

interface Demo {
  readonly npm: ChildProcess;
  readonly proxies: readonly string[];
  readonly target: string;
  readonly ended: Promise<unknown>;
}

/** Starts a demo on its usual ports, and reads the addresses that it prints. */
async function startDemo(...args: readonly string[]): Promise<Demo> {
  const npm = spawn('npm', ['start', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  started.push(npm);
  const ended = once(npm, 'exit');
  let text = '';
  const printed = new Promise<void>((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`npm start printed no commands:\n${text}`)), LIMIT_MS);
    const read = (chunk: string): void => {
      text += chunk;
      if (text.includes('Stop the demo with Ctrl-C')) resolve(clearTimeout(limit));
    };
    npm.stdout.setEncoding('utf8').on('data', read);
    npm.stderr.setEncoding('utf8').on('data', read);
    npm.on('exit', (code) => reject(new Error(`npm start ended with ${code}:\n${text}`)));
  });
  await printed;
  const target = /http:\/\/target\.example:\d+\/ip/.exec(text)?.[0];
  const lines = [...text.matchAll(/^ {2}curl -x http:\/\/([\d.]+:\d+) /gm)];
  const proxies = lines.map(([, proxy = '']) => proxy);
  if (target === undefined || proxies.length === 0) throw new Error(`npm start printed no proxy:\n${text}`);
  return { npm, proxies, target, ended };
}

function exitThrough(proxy: string, target: string): Promise<string> {
  const [host, port] = proxy.split(':');
  return new Promise((resolve, reject) => {
    const request = get({ host, port, path: target, headers: { host: new URL(target).host } }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk) => (body += chunk));
      response.on('end', () => {
        if (response.statusCode === 200 && /^127\.\d+\.\d+\.\d+\s*$/.test(body)) resolve(body.trim());
        else reject(new Error(`${proxy} answered ${response.statusCode}: ${body}`));
      });
    });
    request.on('error', reject);
    request.setTimeout(LIMIT_MS, () => request.destroy(new Error(`${proxy} did not answer`)));
  });
}

/** Ends npm as a supervisor does. The demo must end with it, and its port must be free. */
async function stop({ npm, proxies, ended }: Demo): Promise<void> {
  npm.kill('SIGTERM');
  await ended;
  for (const proxy of proxies) {
    const until = performance.now() + LIMIT_MS;
    while (await accepts(proxy))
      if (performance.now() > until) throw new Error(`${proxy} is open after npm start has ended`);
  }
}

async function accepts(proxy: string): Promise<boolean> {
  const [host, port] = proxy.split(':');
  const socket = connect(Number(port), host);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false; // handled: nothing listens
  } finally {
    socket.destroy();
  }
}
