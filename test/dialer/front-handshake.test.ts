/** What noria sends to a front proxy, and what each of its answers means, on sockets without a network. */
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import type { FrontProxy } from '../../src/core/front-proxy.ts';
import { Secret } from '../../src/core/secret.ts';
import {
  describeFrontFailure,
  type FrontFailure,
  faultOfFrontFailure,
  frontFailureOf,
  frontProxyOf,
  frontSockets,
  helpsAnotherMember,
} from '../../src/dialer/front-proxy.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { scriptedSockets } from './scripted-dialer.ts';

const HTTP: FrontProxy = { protocol: 'http', host: '192.0.2.9', port: 3128 };
const SOCKS: FrontProxy = { ...HTTP, protocol: 'socks5' };
const LOGIN = { username: 'ann', password: new Secret('päss') };

/** Connections to a member through this front proxy. */
function makeFront(front: FrontProxy = HTTP, ownAddresses: readonly { host: string; port: number }[] = []) {
  const clock = ManualClock.dayOld();
  const { opened, openSocket } = scriptedSockets();
  const guard = { mark: 'noria-00000000000000aa', ownAddresses: () => ownAddresses };
  const through = frontSockets(openSocket, clock, guard);
  const open = () => {
    const socket = through(front, { protocol: 'http', host: '192.0.2.1', port: 8000 }, 'tunnel');
    const entry = opened.at(-1);
    if (entry === undefined) throw new Error('no socket');
    const connects: string[] = [];
    socket.on('connect', () => connects.push(entry.written));
    const say = (text: string) => void socket.emit('data', Buffer.from(text, 'latin1'));
    const close = (code: string) => {
      Object.defineProperty(socket, 'errored', { value: Object.assign(new Error(code), { code }) });
      socket.emit('close');
    };
    return { socket, entry, connects, say, close, failure: (ms = 7) => frontFailureOf(socket, ms) };
  };
  return { clock, opened, open };
}

test('front proxy: noria asks it for the member, and nobody sees the connection before it has agreed', () => {
  for (const [front, answers, request] of [
    [
      HTTP,
      ['HTTP/1.1 200 OK\r\n\r\n'],
      'CONNECT 192.0.2.1:8000 HTTP/1.1\r\nHost: 192.0.2.1:8000\r\nVia: 1.1 noria-00000000000000aa\r\n\r\n',
    ],
    [
      { ...HTTP, login: LOGIN },
      ['HTTP/1.1 200 OK\r\n\r\n'],
      `CONNECT 192.0.2.1:8000 HTTP/1.1\r\nHost: 192.0.2.1:8000\r\nProxy-Authorization: Basic ${Buffer.from('ann:päss').toString('base64')}\r\nVia: 1.1 noria-00000000000000aa\r\n\r\n`,
    ],
    [
      SOCKS,
      ['\x05\x00', '\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00'],
      '\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x1f\x40',
    ],
  ] as const) {
    const { open } = makeFront(front);
    const { socket, entry, connects, say, failure } = open();
    expect([entry.port, entry.use, entry.written, frontProxyOf(socket)]).toEqual([3128, 'tunnel', '', front]);
    expect(failure()).toEqual({ problem: 'down', detail: 'no answer within 7 ms' });
    socket.emit('connect');
    expect(failure(7.6)).toMatchObject({ problem: 'silent', detail: 'no answer within 8 ms' });
    for (const answer of answers) {
      expect(connects).toEqual([]);
      say(answer);
    }
    expect([connects, failure(), socket.destroyed]).toEqual([[request], undefined, false]);
    say('\x00 a byte of the member');
    socket.emit('end');
    socket.emit('close');
    expect([connects.length, failure()]).toEqual([1, undefined]);
  }
});

const ANSWERS: readonly [
  string,
  FrontProxy,
  string[] | { code: string; asked?: true },
  Partial<FrontFailure>,
  string,
][] = [
  ['no answer', HTTP, [], { problem: 'silent', answeredOthers: false }, 'front-proxy-silent'],
  [
    '407',
    HTTP,
    ['HTTP/1.1 407 Who\r\n\r\n'],
    { problem: 'login', detail: 'status 407' },
    'front-proxy-failed',
  ],
  [
    '401',
    HTTP,
    ['HTTP/1.1 401 Who\r\n\r\n'],
    { problem: 'login', detail: 'status 401' },
    'front-proxy-failed',
  ],
  [
    '403',
    HTTP,
    ['HTTP/1.1 403 No\r\n\r\n'],
    { problem: 'refused', detail: 'status 403' },
    'front-proxy-failed',
  ],
  ['502', HTTP, ['HTTP/1.1 502 Bad\r\n\r\n'], { problem: 'unreachable' }, 'member-unreachable'],
  ['500', HTTP, ['HTTP/1.1 500 Bad\r\n\r\n'], { problem: 'unreachable' }, 'member-unreachable'],
  ['519', HTTP, ['HTTP/1.1 519 Bad\r\n\r\n'], { problem: 'refused' }, 'front-proxy-failed'],
  ['520', HTTP, ['HTTP/1.1 520 Bad\r\n\r\n'], { problem: 'unreachable' }, 'member-unreachable'],
  ['501', HTTP, ['HTTP/1.1 501 Bad\r\n\r\n'], { problem: 'refused' }, 'front-proxy-failed'],
  [
    'a loop',
    HTTP,
    ['HTTP/1.1 502 Bad\r\nProxy-Status: n; error=proxy_loop_detected\r\n\r\n'],
    { problem: 'loop', detail: 'status 502' },
    'proxy-loop',
  ],
  [
    '503 with the words of a loop',
    HTTP,
    ['HTTP/1.1 503 Bad\r\nProxy-Status: n; error=proxy_loop_detected\r\n\r\n'],
    { problem: 'unreachable', detail: 'status 503' },
    'member-unreachable',
  ],
  [
    'garbage',
    HTTP,
    ['SSH-2.0'],
    { problem: 'protocol', detail: 'not an HTTP response' },
    'front-proxy-failed',
  ],
  [
    'early bytes',
    HTTP,
    ['HTTP/1.1 200 OK\r\n\r\n!'],
    { problem: 'protocol', detail: 'extra bytes after the reply' },
    'front-proxy-failed',
  ],
  ['method 255', SOCKS, ['\x05\xff'], { problem: 'login', detail: 'method 255' }, 'front-proxy-failed'],
  [
    'reply 1',
    SOCKS,
    ['\x05\x00', '\x05\x01'],
    { problem: 'unreachable', detail: 'reply 1' },
    'member-unreachable',
  ],
  [
    'reply 2',
    SOCKS,
    ['\x05\x00', '\x05\x02'],
    { problem: 'refused', detail: 'reply 2' },
    'front-proxy-failed',
  ],
  [
    'reply 5',
    SOCKS,
    ['\x05\x00', '\x05\x05'],
    { problem: 'unreachable', detail: 'reply 5' },
    'member-unreachable',
  ],
  ['no sockets left', HTTP, { code: 'EMFILE' }, { problem: 'local', detail: 'EMFILE' }, 'member-unreachable'],
  [
    'a refused connection',
    HTTP,
    { code: 'ECONNREFUSED' },
    { problem: 'down', detail: 'ECONNREFUSED' },
    'front-proxy-failed',
  ],
  [
    'an unknown name',
    HTTP,
    { code: 'EAI_AGAIN' },
    { problem: 'unresolved', detail: 'EAI_AGAIN' },
    'front-proxy-failed',
  ],
  [
    'a reset of the request',
    HTTP,
    { code: 'ECONNRESET', asked: true },
    { problem: 'silent', detail: 'ECONNRESET' },
    'front-proxy-silent',
  ],
];

test.each(ANSWERS)('front proxy: what %s means', (_, front, answers, expected, fault) => {
  const { open } = makeFront(front);
  const { socket, connects, say, close, failure } = open();
  if (Array.isArray(answers)) {
    socket.emit('connect');
    for (const answer of answers) say(answer);
  } else {
    if (answers.asked) socket.emit('connect');
    close(answers.code);
  }
  const found = failure();
  expect(found).toMatchObject(expected);
  expect(connects).toEqual([]);
  expect(found && faultOfFrontFailure(found)).toBe(fault);
  if (found?.detail.startsWith('no answer') === false) {
    expect(socket.destroyed).toBe(true);
    expect(['data', 'close'].map((name) => socket.listenerCount(name))).toEqual([0, 0]);
    socket.emit('close');
    expect(failure(), 'the first failure stays').toEqual(found);
  }
});

test('front proxy: while it answers others, the member is the cause of the silence', () => {
  for (const [answer, answers] of [
    ['HTTP/1.1 200 OK\r\n\r\n', true],
    ['HTTP/1.1 403 No\r\n\r\n', true],
    ['HTTP/1.1 407 Who\r\n\r\n', true],
    ['HTTP/1.1 502 No\r\n\r\n', true],
    ['SSH-2.0', true],
    ['end', false],
    ['ECONNREFUSED', false],
    ['ENOTFOUND', false],
    ['EMFILE', false],
  ] as const) {
    const { open, clock } = makeFront();
    const silent = open();
    silent.socket.emit('connect');
    clock.advance(10);
    const other = open();
    if (answer.startsWith('E')) other.close(answer);
    else {
      other.socket.emit('connect');
      if (answer === 'end') other.socket.emit('end');
      else other.say(answer);
    }
    const failure = silent.failure();
    expect(failure, answer).toMatchObject({ problem: 'silent', answeredOthers: answers });
    expect(failure && faultOfFrontFailure(failure)).toBe(
      answers ? 'member-unreachable' : 'front-proxy-silent',
    );
    clock.advance(10);
    const later = open();
    later.socket.emit('connect');
    expect(later.failure(), 'an answer before').toMatchObject({ answeredOthers: false });
  }
});

test("front proxy: at one of noria's own addresses gets no request", () => {
  for (const [port, isLoop] of [
    [3128, true],
    [3129, false],
  ] as const) {
    const { open } = makeFront(HTTP, [{ host: '192.0.2.9', port: 3128 }]);
    const { socket, entry, failure } = open();
    Object.defineProperty(socket, 'remoteAddress', { value: '192.0.2.9' });
    Object.defineProperty(socket, 'remotePort', { value: port });
    socket.emit('connect');
    expect([failure()?.problem, entry.written === '', socket.destroyed]).toEqual([
      isLoop ? 'loop' : 'silent',
      isLoop,
      isLoop,
    ]);
  }
});

test('front proxy: a direct socket has no failure of one, and a member without an address is a mistake', () => {
  const socket = new Socket();
  expect([frontFailureOf(socket, 1), frontFailureOf(undefined, 1), frontProxyOf(socket)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  const { openSocket } = scriptedSockets();
  const through = frontSockets(openSocket, new ManualClock(), { mark: 'noria-0', ownAddresses: () => [] });
  expect(() => through(HTTP, { protocol: 'http', host: '192.0.2.1', port: 70_000 }, 'tunnel')).toThrow(
    new TypeError('not an address of a member: host 192.0.2.1, port 70000'),
  );
});

test('front proxy: another member is tried while it only refused or did not answer, up to the limit', () => {
  const failed = (problem?: FrontFailure['problem']) =>
    problem === undefined ? {} : { frontFailure: { problem, detail: 'x' } };
  expect([
    helpsAnotherMember([failed('refused'), failed('silent')], 3),
    helpsAnotherMember([failed('refused'), failed('silent')], 2),
    helpsAnotherMember([failed('refused'), failed('login')], 3),
    helpsAnotherMember([failed('refused'), failed()], 3),
  ]).toEqual([true, false, false, false]);
});

test('front proxy: each problem has a description with its detail, and an advice that names the key', () => {
  const names = { front: 'the front proxy', server: 'a member', key: 'dial.via' };
  const describe = (problem: FrontFailure['problem']) =>
    describeFrontFailure({ problem, detail: 'x' }, names);
  for (const [problem, pattern] of Object.entries({
    local: /^this machine could not open a connection to the front proxy \(x\); .*ulimit/,
    unresolved: /^could not resolve the name of the front proxy \(x\); check the host in dial\.via/,
    down: /^could not connect to the front proxy \(x\); .* dial\.via$/,
    login: /^the front proxy requires a valid user name and password \(x\); .* dial\.via$/,
    refused: /^the front proxy refused to connect to a member \(x\); allow/,
    protocol: /^the front proxy did not answer like a proxy \(x\); .* dial\.via$/,
    silent: /^the front proxy did not answer \(x\); .* a member$/,
    unreachable: /^the front proxy could not reach a member \(x\); check/,
    loop: /^the front proxy leads back to noria \(x\); set dial\.via/,
  } satisfies Record<FrontFailure['problem'], RegExp>)) {
    expect(describe(problem as FrontFailure['problem'])).toMatch(pattern);
  }
});

test('front proxy: an answer at the moment when the attempt began counts as well', () => {
  const { open } = makeFront();
  const [silent, other] = [open(), open()];
  for (const { socket } of [silent, other]) socket.emit('connect');
  other.say('HTTP/1.1 200 OK\r\n\r\n');
  expect(silent.failure()).toMatchObject({ problem: 'silent', answeredOthers: true });
});
