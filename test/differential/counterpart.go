// Go's net/http as a server that prints each whole request as a line of JSON, or as a client of the answers of a target.
//
//	counterpart serve          prints its port, then the requests
//	counterpart ask PORT       reads `METHOD URL` lines, asks each through the proxy at this port, prints the answers
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
)

type seen struct {
	Method   string   `json:"method"`
	Target   string   `json:"target"`
	Fields   []string `json:"fields"`
	Body     string   `json:"body"`
	Trailers []string `json:"trailers"`
}

type answer struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
	Error  string `json:"error,omitempty"`
}

var printing sync.Mutex

func main() {
	if os.Args[1] == "serve" {
		serve()
	} else {
		ask(os.Args[2])
	}
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go http.Serve(listener, http.HandlerFunc(respond))
	io.Copy(io.Discard, os.Stdin) // until the test ends
}

func respond(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // a request that ends in the middle
	}
	fields := append([]string{"host: " + request.Host}, lines(request.Header)...)
	// Go removes this field, and keeps Content-Length.
	for _, coding := range request.TransferEncoding {
		fields = append(fields, "transfer-encoding: "+coding)
	}
	show(seen{request.Method, latin1([]byte(request.RequestURI)), fields, latin1(body), lines(request.Trailer)})
	response.Header().Set("X-Seen", fmt.Sprintf("%s %s %x", request.Method, request.RequestURI, sha1.Sum(body)))
	response.Header().Set("Content-Length", "0")
}

func lines(header http.Header) []string {
	all := []string{}
	for name, values := range header {
		for _, value := range values {
			all = append(all, strings.ToLower(name)+": "+latin1([]byte(value)))
		}
	}
	return all
}

func ask(port string) {
	proxy, _ := url.Parse("http://127.0.0.1:" + port)
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), DisableCompression: true, MaxConnsPerHost: 1}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		method, target, _ := strings.Cut(input.Text(), " ")
		show(askOnce(client, method, target))
	}
}

func askOnce(client *http.Client, method string, target string) answer {
	request, err := http.NewRequest(method, target, nil)
	if err != nil {
		panic(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Status: response.StatusCode, Body: latin1(body)}
}

func latin1(bytes []byte) string {
	runes := make([]rune, len(bytes))
	for at, value := range bytes {
		runes[at] = rune(value)
	}
	return string(runes)
}

func show(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}
