import { once } from 'node:events';
import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { joinStreams } from '../../src/sandbox/join-streams.ts';

test('join: a target that has ended and closed leaves the client the time to take what was sent', async () => {
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
  client.push(null); // the client has nothing to say
  joinStreams(client, target);
  await once(client, 'close');
  expect(taken).toEqual(['one', 'two', 'three']);
  expect([client.writableFinished, target.destroyed]).toEqual([true, true]);
});

test('join: a stream that is closed already takes the other with it', async () => {
  const idle = () => new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const [client, target] = [idle(), idle()];
  client.destroy();
  joinStreams(client, target);
  await once(target, 'close');
});
