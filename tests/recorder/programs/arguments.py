import os
import sys

import sibling

print(sys.argv[1:], __name__, os.path.basename(__file__), os.path.isabs(__file__), sibling.NAME)
print(sys.path[0] == os.path.dirname(__file__), sys.modules["__main__"].__file__ == __file__, __spec__, __package__)
