/* A relay that inspects nothing: each connection has two threads, each direction one buffer.
   relay LISTEN_PORT TARGET_PORT, both on loopback. It prints a line once it listens. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER (256 << 10)

struct pair { int from, to; };
static struct sockaddr_in target;

static struct sockaddr_in loopback(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void *copy(void *given) {
    struct pair pair = *(struct pair *)given;
    char *buffer = malloc(BUFFER);
    ssize_t size;
    free(given);
    while ((size = recv(pair.from, buffer, BUFFER, 0)) > 0)
        for (ssize_t sent = 0, more; sent < size; sent += more)
            if ((more = send(pair.to, buffer + sent, size - sent, 0)) < 0) goto end;
end:
    shutdown(pair.from, SHUT_RDWR);
    shutdown(pair.to, SHUT_RDWR); /* descriptors stay open: a benchmark has few connections */
    free(buffer);
    return NULL;
}

static void start(int from, int to) {
    struct pair *pair = malloc(sizeof *pair);
    pthread_t thread;
    *pair = (struct pair){from, to};
    pthread_create(&thread, NULL, copy, pair);
    pthread_detach(thread);
}

int main(int count, char **arguments) {
    if (count != 3) return 64;
    struct sockaddr_in here = loopback(arguments[1]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    target = loopback(arguments[2]);
    signal(SIGPIPE, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1024)) return perror("listen"), 1;
    puts("up");
    fflush(stdout);
    for (int client; (client = accept(listener, NULL, NULL)) >= 0;) {
        int broker = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(broker, (struct sockaddr *)&target, sizeof target)) { close(broker); close(client); continue; }
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(broker, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        start(client, broker);
        start(broker, client);
    }
    return 0;
}
