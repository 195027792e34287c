import { once } from 'node:events';
import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { joinStreams } from '../../src/sandbox/member-server.ts';

test('join streams: a client receives everything from a target that has already closed', async () => {
  const taken: string[] = [];
  const client = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      setImmediate(() => {
        taken.push(chunk.toString());
        done();
      });
    },
  });
  const answers = ['one', 'two', 'three', null];
  const target = new Duplex({
    read() {
      this.push(answers.shift());
    },
    write(_chunk, _encoding, done) {
      done();
    },
  });
  client.push(null); // the client sends no bytes
  joinStreams(client, target);
  await once(client, 'close');
  expect(taken).toEqual(['one', 'two', 'three']);
  expect([client.writableFinished, target.destroyed]).toEqual([true, true]);
});

test('join streams: a stream that is already closed destroys the other one', async () => {
  const idle = () => new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const [client, target] = [idle(), idle()];
  client.destroy();
  joinStreams(client, target);
  await once(target, 'close');
});
