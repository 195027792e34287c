import { expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { COMMAND_DEADLINE_MS, openStoreClient } from '../../../src/fleet/redis/connection.ts';
import { EPOCH_LUA, fleetKeys } from '../../../src/fleet/redis/store.ts';
import { NO_STORE, openStore } from '../../support/store-server.ts';

/** Returns the INFO of a store that lacks this field. */
const without = (field: string) => `
local real = redis
local redis = setmetatable({ call = function(name, ...)
  local reply = real.call(name, ...)
  return name == 'INFO' and string.gsub(reply, '${field}:%w+', '') or reply
end }, { __index = real })
`;

test.skipIf(NO_STORE)(
  'epoch: a store that does not name its run or its data is refused, and stays empty',
  async () => {
    const store = await openStore();
    const { signal } = new AbortController();
    const options = { clock: systemClock, deadlineMs: COMMAND_DEADLINE_MS, signal };
    const client = await openStoreClient(store.address().server, options);
    const args = ['1', fleetKeys('noria').epoch, '', '0', 'one', '0'];
    for (const field of ['run_id', 'master_replid']) {
      const script = [without(field), EPOCH_LUA, 'return answer()'].join('\n');
      await expect(client.call(['EVAL', script, ...args]), field).rejects.toThrow('IDENTITY');
    }
    expect(await store.command('DBSIZE')).toBe(0);
    client.close();
  },
);
