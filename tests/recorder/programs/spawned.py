import multiprocessing as mp
import pickle
from dataclasses import dataclass


@dataclass
class Point:
    x: int


def double(point):
    return Point(2 * point.x)


if __name__ == "__main__":
    print(pickle.loads(pickle.dumps(Point(3))))
    for method in ("spawn", "fork"):
        with mp.get_context(method).Pool(1) as pool:
            print(method, pool.map(double, [Point(1), Point(4)]))
