import { afterAll, beforeAll, describe, expect, onTestFinished } from 'vitest';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, TestStore } from '../../support/store-server.ts';
import { testSharedPool } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  beforeAll(async () => {
    server = new TestStore(await freePort(), {});
    await server.start();
  });
  afterAll(() => server.close());

  testSharedPool('redis', () => {
    const stage = openStoreStage(server);
    onTestFinished(() => expect(stage.lost, 'lost connections').toEqual([]));
    return stage;
  });
});
