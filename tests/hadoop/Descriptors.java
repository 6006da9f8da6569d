import java.io.ByteArrayOutputStream;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FileDescriptor;

/** Prints the definitions in Hadoop's jars: a FileDescriptorSet, of the classes named. */
public class Descriptors {
  public static void main(String[] names) throws Exception {
    Set<FileDescriptor> files = new LinkedHashSet<>();
    for (String name : names) {
      add((FileDescriptor) Class.forName(name).getMethod("getDescriptor").invoke(null), files);
    }
    for (FileDescriptor file : files) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      file.toProto().writeTo(out);
      int size = out.size();
      System.out.write(new byte[] {10});  // the field 1 of a FileDescriptorSet
      for (; size > 127; size >>>= 7) {
        System.out.write(size & 127 | 128);
      }
      System.out.write(size);
      System.out.write(out.toByteArray());
    }
    System.out.flush();
  }

  private static void add(FileDescriptor file, Set<FileDescriptor> files) {
    for (FileDescriptor other : file.getDependencies()) {
      add(other, files);
    }
    files.add(file);
  }
}
