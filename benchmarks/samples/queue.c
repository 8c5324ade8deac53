#include <stdio.h>
#include <stdlib.h>

#define CAPACITY 64

struct queue {
    int items[CAPACITY];
    int head;
    int size;
};

void queue_init(struct queue *queue)
{
    queue->head = 0;
    queue->size = 0;
}

int queue_push(struct queue *queue, int item)
{
    if (queue->size == CAPACITY) {
        return -1;
    }
    queue->items[(queue->head + queue->size) % CAPACITY] = item;
    queue->size++;
    return 0;
}

int queue_pop(struct queue *queue, int *item)
{
    if (queue->size == 0) {
        return -1;
    }
    *item = queue->items[queue->head];
    queue->head = (queue->head + 1) % CAPACITY;
    queue->size--;
    return 0;
}

int main(void)
{
    struct queue queue;
    int item;

    queue_init(&queue);
    queue_push(&queue, 7);
    queue_pop(&queue, &item);
    printf("popped %d\n", item);
    return 0;
}
