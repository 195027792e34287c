import { expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { EPOCH_LUA, epochArguments, epochKeys } from '../../../src/fleet/redis/epoch.ts';
import { Script } from '../../../src/fleet/redis/fleet-store.ts';
import { fleetKeys } from '../../../src/fleet/redis/keys.ts';
import { openStoreClient } from '../../../src/fleet/redis/store-client.ts';
import { COMMAND_DEADLINE_MS } from '../../../src/fleet/redis/store-connection.ts';
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
    const runner = { call: (command: readonly string[]) => client.call(command, COMMAND_DEADLINE_MS) };
    const args = epochArguments({
      remembered: '',
      rememberedForMs: 0,
      newEpochId: 'one',
      clockWasSet: false,
    });
    for (const field of ['run_id', 'master_replid']) {
      const script = new Script(without(field), EPOCH_LUA, 'return answer()');
      await expect(script.run(runner, epochKeys(fleetKeys('noria')), args), field).rejects.toThrow(
        'IDENTITY',
      );
    }
    expect(await store.command('DBSIZE')).toBe(0);
    client.close();
  },
);
