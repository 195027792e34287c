import { expect, test } from 'vitest';
import { describeTakenPorts } from '../../src/commands/demo.ts';

const DEFAULT = {
  listeners: ['127.0.0.1:8888', '127.0.0.1:8890'],
  admin: '127.0.0.1:8889',
  target: 'http://target.example:8080',
};
const OTHER = {
  listeners: ['127.0.0.1:40001', '127.0.0.1:40002'],
  admin: '127.0.0.1:40003',
  target: 'http://target.example:40004',
};

test('demo: says which default ports are taken, and which ports it uses instead', () => {
  expect(describeTakenPorts({}, DEFAULT)).toEqual([]);
  expect(describeTakenPorts({}, OTHER)).toEqual([
    'Port 8888 is in use, so the proxy uses port 40001 instead.',
    'Port 8890 is in use, so the proxy for browsers uses port 40002 instead.',
    'Port 8889 is in use, so the dashboard uses port 40003 instead.',
    'Port 8080 is in use, so the target site uses port 40004 instead.',
  ]);
});

test('demo: says nothing about a port that the command line sets', () => {
  expect(describeTakenPorts({ port: 0, adminPort: 0, targetPort: 0 }, OTHER)).toEqual([]);
  expect(describeTakenPorts({ port: 40_001, adminPort: 40_003, targetPort: 40_004 }, OTHER)).toEqual([
    'Port 8890 is in use, so the proxy for browsers uses port 40002 instead.',
  ]);
});

test('demo: each replica has its own default ports', () => {
  const second = { ...DEFAULT, listeners: ['127.0.0.1:8898', '127.0.0.1:8900'], admin: '127.0.0.1:40003' };
  expect(describeTakenPorts({}, second, 2)).toEqual([
    'Port 8899 is in use, so the dashboard uses port 40003 instead.',
  ]);
});
