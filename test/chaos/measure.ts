/**
 * A module to load into a noria with `node --import` and `--expose-gc`. At SIGUSR2, the process collects its garbage and writes what
 * memory it holds outside the heap to `NORIA_TEST_MEASURES.PID`. A worker process does the same.
 */
import { renameSync, writeFileSync } from 'node:fs';

process.on('SIGUSR2', () => {
  globalThis.gc?.();
  // memory of buffers is freed in a later turn of the event loop
  setImmediate(() => {
    globalThis.gc?.();
    const file = `${process.env['NORIA_TEST_MEASURES']}.${process.pid}`;
    writeFileSync(`${file}.draft`, String(process.memoryUsage().external)); // includes `arrayBuffers`
    renameSync(`${file}.draft`, file);
  });
});
