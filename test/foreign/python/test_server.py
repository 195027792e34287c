"""The target that the tests of PySocks import as `test_server`; no published version of that package runs on a current Python."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class TestServer:
    def __init__(self, address, port, engine):
        self.reset()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # the whole answer in one segment: the tests read once

            def do_GET(self):
                headers = {name.lower(): value for name, value in self.headers.items()}
                owner.request.update(headers=headers, client_ip=self.client_address[0])
                time.sleep(owner.response.get("sleep", 0))
                data = owner.response["data"]
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self._url = "http://%s:%d/" % (address, port)
        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True

    def reset(self):
        self.request = {}
        self.response = {"data": b""}

    def start(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def get_url(self):
        return self._url
