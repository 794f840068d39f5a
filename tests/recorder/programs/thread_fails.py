import threading

thread = threading.Thread(target=lambda: 1 // 0, name="worker-1")
thread.start()
thread.join()
print("main goes on")
