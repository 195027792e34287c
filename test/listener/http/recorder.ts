/** A target that records each request with its body, and answers with the same text in angle brackets. */
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';

export interface Recorder {
  readonly port: number;
  /** `METHOD PATH BODY`, in the order in which they were complete. */
  readonly requests: string[];
}

export async function openRecorder(): Promise<Recorder> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    void buffer(request).then((body) => {
      const text = `${request.method} ${request.url} ${body.toString('latin1')}`;
      requests.push(text);
      response.end(`<${text}>`);
    });
  });
  // node:http has no handler for upgrades here, so it serves a request with `Upgrade` as an ordinary one, like targets
  // that ignore Upgrade.
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  return { port: address !== null && typeof address === 'object' ? address.port : 0, requests };
}
